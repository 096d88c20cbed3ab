"""The promises of a conversation store, one test each, for pytest."""

from __future__ import annotations

from typing import ClassVar

import pytest

from toolnexus.testing.store_contract._crashes import Crashes
from toolnexus.testing.store_contract._kept import Kept
from toolnexus.testing.store_contract._leases import Leases
from toolnexus.testing.store_contract._lists import Lists
from toolnexus.testing.store_contract._scale import Scale
from toolnexus.testing.store_contract._turns import Turns
from toolnexus.testing.store_contract._versions import Versions


class StoreContract(Kept, Versions, Turns, Leases, Crashes, Lists, Scale):
    """Inherit it, say how your store is opened, and know that it fits:

        @pytest.fixture
        def open(tmp_path):
            return lambda: MyStore(tmp_path / "chat.db")

        class TestMyStore(StoreContract): ...

    Each call of what the fixture `open` gives, which may be a coroutine function, makes a *new, independent* store on
    the same data, which is empty when a test begins. The contract closes the stores (`aclose`, if they have one). No
    plugin for coroutine tests is needed.

    A store of two methods is held to what such a store can promise; the other tests are skipped. A `LogStore` is held
    to all of it, and its backend too. Two more fixtures may be overridden in the class: `open_expiring` and
    `make_newer`.
    """

    deviations: ClassVar[dict[str, str]] = {}
    """Tests that the store is known to fail, by name, and why. One that passes all the same is an error."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if unknown := [name for name in cls.deviations if not hasattr(cls, name)]:
            raise TypeError(f"{cls.__name__}.deviations names tests that do not exist: {', '.join(unknown)}.")

    @pytest.fixture(autouse=True)
    def expect_known_deviation(self, request: pytest.FixtureRequest) -> None:
        """Expect a test to fail that `deviations` names."""
        if (reason := self.deviations.get(request.function.__name__)) is not None:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
