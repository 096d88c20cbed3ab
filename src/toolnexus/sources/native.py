"""Plain functions as tools: the schema from the signature, the words from the docstring."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypedDict, TypeVar, Unpack, cast, get_args, get_origin, overload
from weakref import WeakKeyDictionary

import pydantic_core
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from toolnexus import _json
from toolnexus.errors import ConfigurationError
from toolnexus.sources import _docstrings, _types
from toolnexus.tools import InvalidArguments, JSONObject, Tool, ToolContext

_Function: TypeAlias = Callable[..., Any]
_F = TypeVar("_F", bound=_Function)

_EXTRA = "**"
"""The field for what a `**kwargs` parameter takes. No parameter can have this name."""
_OPTIONS = "__toolnexus__"
"""The attribute in which `tool` keeps its options."""


class ToolOptions(TypedDict, total=False):
    """What can be said about a tool beside its function; see `Tool`. A name or description comes from the function."""

    name: str
    description: str
    read_only: bool
    exclusive: bool
    idempotent: bool
    needs_approval: bool
    timeout: float | None


@overload
def tool(function: _F, /) -> _F: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[_F], _F]: ...
def tool(function: _Function | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Say what a function is as a tool: `@tool`, or `@tool(read_only=True, timeout=5)`.

    The function stays what it is, so that it can be called, tested and bound to an object as before. It becomes a
    `Tool` where it is given to a toolkit or a run, and errors in its signature are found there.

    Raises:
        ConfigurationError: An option is wrong.
    """
    _check_options(options)

    def mark(function: _F) -> _F:
        # What `@staticmethod` and `@classmethod` give is not what the class later shows; the function inside is.
        setattr(getattr(function, "__func__", function), _OPTIONS, options)
        return function

    return mark if function is None else mark(function)


def define_tool(function: _Function, /, **options: Unpack[ToolOptions]) -> Tool:
    """A tool that calls `function`, a plain or a coroutine function, bound method, partial or callable object.

    Arguments arrive converted to the annotated types. A parameter annotated `ToolContext`, or named `ctx`, gets the
    call's context and is not shown to the model; neither is what a `functools.partial` has fixed.

    Args:
        options: They win over those of the decorator `tool`.

    Raises:
        ConfigurationError: A model cannot fill a parameter, or an option is wrong. The text names it.
    """
    code = _code(function)
    _check_options(options)
    chosen: dict[str, Any] = {**getattr(code, _OPTIONS, {}), **options}
    name = chosen.setdefault("name", _name(function))
    if name == "<lambda>":
        raise ConfigurationError("A lambda has no name. Give one: define_tool(function, name=...).")
    signature = _signature_of(function, code, name)
    chosen.setdefault("description", signature.description)
    return Tool(
        input_schema=signature.schema,
        execute=_execute(function, signature, is_async=inspect.iscoroutinefunction(code)),
        convert=signature.convert,
        **chosen,
    )


def _check_options(options: ToolOptions) -> None:
    if unknown := options.keys() - ToolOptions.__annotations__.keys():
        known = ", ".join(ToolOptions.__annotations__)
        raise ConfigurationError(f"A tool has no option {', '.join(map(repr, sorted(unknown)))}. There are: {known}.")
    if not options.get("name", "-"):
        raise ConfigurationError("A tool's name is empty. Leave it out for the function's own name.")
    timeout = options.get("timeout")
    if timeout is not None and not timeout > 0:
        raise ConfigurationError(f"A tool's timeout is {timeout!r}; give seconds above 0, or None.")


def _inside_partials(function: _Function) -> _Function:
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return function


def _fixed(function: _Function) -> Mapping[str, Any]:
    """What a partial gives by name; it is not for the model to say something else."""
    return cast("functools.partial[Any]", function).keywords if isinstance(function, functools.partial) else {}


def _code(function: _Function) -> _Function:
    """What runs: a function or method itself, or what an object does when it is called."""
    function = _inside_partials(function)
    if isinstance(function, type) or not callable(function):
        raise ConfigurationError(f"{function!r} cannot be a tool. Give a function, a bound method or a `Tool`.")
    return function if inspect.isroutine(function) else cast("Any", type(function)).__call__


def _name(function: _Function) -> str:
    function = _inside_partials(function)
    return getattr(function, "__name__", cast("type", type(function)).__name__)


def _doc(function: _Function) -> str | None:
    """The docstring; an object that can be called may have it in its class."""
    function = _inside_partials(function)
    own = inspect.getdoc(_code(function))
    return own if own is not None or inspect.isroutine(function) else inspect.getdoc(cast("type", type(function)))


@dataclass(frozen=True, slots=True, repr=False)
class _Signature:
    """What a model and a call need to know of a function. It does not refer to the function.

    Attributes:
        positional: Names and defaults of the parameters that cannot be given by name.
        context: The parameter that gets the `ToolContext`.
    """

    description: str
    schema: JSONObject
    adapter: TypeAdapter[JSONObject]
    positional: tuple[tuple[str, Any], ...]
    context: str | None
    takes_more: bool

    def convert(self, arguments: JSONObject) -> JSONObject:
        """Arguments as the function's own types."""
        if self.takes_more:
            known = self.schema["properties"]
            more = {name: value for name, value in arguments.items() if name not in known}
            arguments = {name: value for name, value in arguments.items() if name in known} | {_EXTRA: more}
        try:
            # As JSON, so that a date or a strict model reads what a model can write.
            values = self.adapter.validate_json(pydantic_core.to_json(arguments))
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False)
            raise InvalidArguments.listing(_problem(cast("Mapping[str, Any]", each)) for each in problems) from None
        if self.takes_more:
            values |= values.pop(_EXTRA)
        return values


def _problem(error: Mapping[str, Any]) -> tuple[list[str | int], str]:
    path = [step for step in error["loc"] if step != _EXTRA]
    if error["type"] == "extra_forbidden":
        return path, "there is no such parameter"
    return path, _types.problem(error)


def _execute(function: _Function, signature: _Signature, *, is_async: bool) -> Callable[[JSONObject, ToolContext], Any]:
    call = _call(function, signature)
    if not is_async:
        return call

    async def execute(arguments: JSONObject, context: ToolContext) -> Any:
        return await call(arguments, context)

    return execute


def _call(function: _Function, signature: _Signature) -> Callable[[JSONObject, ToolContext], Any]:
    positional, name = signature.positional, signature.context
    if not positional and name is None:
        return lambda arguments, _: function(**arguments)

    def call(arguments: JSONObject, context: ToolContext) -> Any:
        named = dict(arguments) if name is None else {**arguments, name: context}
        return function(*[named.pop(each, default) for each, default in positional], **named)

    return call


_signatures: WeakKeyDictionary[_Function, dict[bool, _Signature]] = WeakKeyDictionary()
"""By function, and whether it is bound to an object. Lists of functions are given again with each run."""


def _signature_of(function: _Function, code: _Function, name: str) -> _Signature:
    bound = isinstance(function, types.MethodType)
    inner: Any = function.__func__ if bound else function
    if not isinstance(inner, types.FunctionType):
        return _read(function, code, name)
    known = _signatures.setdefault(inner, {})
    if bound not in known:
        known[bound] = _read(function, code, name)
    return known[bound]


@dataclass(frozen=True, slots=True)
class _Field:
    """A parameter that a model fills."""

    name: str
    hint: Any
    required: bool


def _read(function: _Function, code: _Function, name: str) -> _Signature:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{name}: its signature cannot be read. Wrap it in a function of your own.") from error
    if parameters and parameters[0].name == "self" and parameters[0].annotation is inspect.Parameter.empty:
        raise ConfigurationError(f"{name} is a method without its object. Give it bound: object.{name}.")
    description, told = _docstrings.read(_doc(function))
    context = next((each.name for each in parameters if _is_context(each)), None)
    shown = [each for each in parameters if each.name != context and each.name not in _fixed(function)]
    fields = [_field(each, code, name, told.get(each.name)) for each in shown]
    adapter, schema = _described_to_model(fields, name)
    return _Signature(
        description=description,
        schema=_finished(schema, shown, name),
        adapter=adapter,
        positional=tuple((each.name, each.default) for each in parameters if each.kind is each.POSITIONAL_ONLY),
        context=context,
        takes_more=any(field.name == _EXTRA for field in fields),
    )


def _is_context(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    if isinstance(annotation, str):  # it may be imported for type checkers only, so it is not evaluated
        return parameter.name == "ctx" or re.search(r"\bToolContext\b", annotation) is not None
    return parameter.name == "ctx" or annotation is ToolContext or ToolContext in get_args(annotation)


def _field(parameter: inspect.Parameter, code: _Function, tool: str, told: str | None) -> _Field:
    if parameter.kind is parameter.VAR_POSITIONAL:
        raise ConfigurationError(
            f"{tool}: a model gives arguments by name, so it cannot fill *{parameter.name}. Take a list instead."
        )
    hint = _types.portable(_resolved(parameter, code, tool))
    if parameter.kind is parameter.VAR_KEYWORD:
        return _Field(_EXTRA, dict[str, hint], required=True)
    default = parameter.default
    if isinstance(default, FieldInfo):  # `x: int = Field(5, ge=1)`
        return _Field(parameter.name, _described(Annotated[hint, default], told), required=default.is_required())
    return _Field(parameter.name, _described(hint, told), required=default is parameter.empty)


def _described(hint: Any, told: str | None) -> Any:
    """With the docstring's words, which give way to those of a `Field`."""
    if told is None:
        return hint
    base, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    return Annotated[(base, Field(description=told), *notes)]


def _resolved(parameter: inspect.Parameter, code: _Function, tool: str) -> Any:
    if parameter.annotation is parameter.empty:
        return Any

    def holder() -> None: ...

    holder.__annotations__ = {parameter.name: parameter.annotation}
    inner = inspect.unwrap(code)
    try:
        hints = typing.get_type_hints(holder, getattr(inner, "__globals__", {}), _around(inner), include_extras=True)
    except Exception as error:  # evaluating an annotation may raise anything
        raise ConfigurationError(
            f"{tool}: the annotation {parameter.annotation!r} of {parameter.name!r} cannot be resolved ({error}). "
            "Import or define what it names at the top of the module, and not for type checkers only."
        ) from error
    return hints[parameter.name]


def _around(function: _Function) -> dict[str, Any] | None:
    """The names around a function that is defined inside another one, as long as that one is running."""
    own = getattr(function, "__code__", None)
    frame = inspect.currentframe()
    while own is not None and frame is not None:
        if own in frame.f_code.co_consts:
            return frame.f_locals
        frame = frame.f_back
    return None


def _described_to_model(fields: list[_Field], tool: str) -> tuple[TypeAdapter[JSONObject], JSONObject]:
    """A validator of all parameters, and its schema."""
    try:
        return _adapter(fields)
    except _types.REFUSALS as error:
        for field in fields:
            _try(field, tool)
        raise ConfigurationError(
            f"{tool}: its parameters cannot be described to a model ({_types.told(error)})."
        ) from error


def _adapter(fields: list[_Field]) -> tuple[TypeAdapter[JSONObject], JSONObject]:
    # A TypedDict, because its keys, unlike the fields of a model, may have any name.
    arguments = _types.typed_dict(
        "Arguments",
        {each.name: (typing.Required if each.required else typing.NotRequired)[each.hint] for each in fields},
    )
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")
    adapter: TypeAdapter[JSONObject] = TypeAdapter(arguments)
    return adapter, adapter.json_schema(schema_generator=_types.WithoutTitles)


def _try(field: _Field, tool: str) -> None:
    try:
        _adapter([field])
    except _types.REFUSALS as error:
        name = "**kwargs" if field.name == _EXTRA else repr(field.name)
        raise ConfigurationError(
            f"{tool}: a model cannot fill the parameter {name} of the type {field.hint!r} ({_types.told(error)}). Use "
            "types that JSON can carry (numbers, text, lists, dataclasses, …), or fix it with functools.partial."
        ) from error


def _finished(schema: JSONObject, shown: list[inspect.Parameter], tool: str) -> JSONObject:
    """The schema with defaults and `**kwargs` said, and no titles that only repeat a name."""
    del schema["title"]
    _types.drop_titles(schema.get("$defs", {}))
    properties: JSONObject = schema.setdefault("properties", {})
    if (extra := properties.pop(_EXTRA, None)) is not None:
        schema["required"].remove(_EXTRA)
        schema["additionalProperties"] = extra["additionalProperties"]
    for parameter in shown:
        if parameter.name in properties and parameter.default is not parameter.empty:
            with contextlib.suppress(pydantic_core.PydanticSerializationError):  # not everything can be shown
                properties[parameter.name].setdefault("default", pydantic_core.to_jsonable_python(parameter.default))
    try:
        _json.dumps(schema, "its schema")
    except ValueError as error:
        raise ConfigurationError(f"{tool}: {error}") from error
    return schema
