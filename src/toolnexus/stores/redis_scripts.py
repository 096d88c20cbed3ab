"""What runs inside Redis: one Lua script for each operation, so that each happens whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the name that Redis keeps it under."""

    text: str
    sha: str


def _script(*parts: str) -> Script:
    text = "\n".join(parts)
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


# A conversation is three keys of one hash tag: a hash, the list of its records, and the words that can be searched,
# each between two blanks.
# Of the hash:  incarnation, fence; last: number of the last record, to notice that one of the keys was lost;
#   token, process: who held it last; until: when the lease expires, in milliseconds, empty when it was given back;
#   head: what a list shows; headed: the last record when that was set;
#   open: records were added since; suspended: the last turn waits for a person.
_CONVERSATION = """
local hash, log, words = KEYS[1], KEYS[2], KEYS[3]
local found = redis.call('HMGET', hash, 'incarnation', 'last', 'fence', 'token', 'process', 'until', 'headed', 'open',
                         'suspended')
local incarnation, last, fence, token, process = found[1], tonumber(found[2] or 0), found[3], found[4], found[5]
local expires, headed, open, suspended = tonumber(found[6] or nil), found[7], found[8] == '1', found[9] == '1'
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
if redis.call('LLEN', log) ~= last then
  return {'corrupt'}
end
"""

_WRITING = """
-- Add the records in ARGV. The hash is still to say so: it is written once.
local function push(first)
  for i = first, #ARGV, 1000 do  -- Lua's stack is bounded
    redis.call('RPUSH', log, unpack(ARGV, i, math.min(i + 999, #ARGV)))
  end
  last = last + #ARGV - first + 1
  open = true
end

-- Whether the records in ARGV are those after a number, up to the last.
local function stands(first, number)
  if last ~= number + #ARGV - first + 1 then
    return false
  end
  for i = first, #ARGV, 1000 do
    local from, count = number + i - first, math.min(1000, #ARGV - i + 1)
    for j, record in ipairs(redis.call('LRANGE', log, from, from + count - 1)) do
      if record ~= ARGV[i + j - 1] then
        return false
      end
    end
  end
  return true
end

-- Let all keys expire together, or none. What runs or waits for a person stays. A lease alone goes after a day.
local function keep(life)
  local stays = last > 0 and (life == '' or open or suspended)
  local left = not stays and expires and math.max(expires - now(), 0) or 0
  if last == 0 then
    redis.call('PEXPIRE', hash, left + 86400000)
    return
  end
  for _, key in ipairs(KEYS) do
    if stays then
      redis.call('PERSIST', key)
    else
      redis.call('PEXPIRE', key, left + life)
    end
  end
end
"""

BEGIN = _script(
    _CONVERSATION,
    _WRITING,
    """
local fresh, mine, owner, ttl, life = ARGV[1], ARGV[2] == token and expires, ARGV[3], ARGV[4], ARGV[5]
local known, number, first = ARGV[6], tonumber(ARGV[7]), 8
local time = now()
if expires and expires > time and not mine then
  return {'busy'}
end
if known == incarnation and number > last then
  return {'lost'}
end
if not incarnation then
  incarnation = fresh
end
if not mine then
  fence = (fence or 0) + 1
end
expires = time + ttl
local newer
if number == last and (known == incarnation or last == 0) then
  if first <= #ARGV then
    push(first)
  end
elseif not (mine and (known == incarnation or known == '0') and stands(first, number)) then
  newer = redis.call('LRANGE', log, known == incarnation and number or 0, -1)
end
redis.call('HSET', hash, 'incarnation', incarnation, 'fence', fence, 'token', ARGV[2], 'process', owner,
           'until', string.format('%.0f', expires), 'last', last, 'open', open and '1' or '0')
keep(life)
return {newer and 'behind' or 'ok', incarnation, tonumber(fence), last, newer or {}}
""",
)

_HELD = """
if incarnation ~= ARGV[1] or fence ~= ARGV[2] or token ~= ARGV[3] then
  return {'fenced'}
end
"""

APPEND = _script(
    _CONVERSATION,
    _WRITING,
    _HELD,
    """
local life, number, release = ARGV[4], tonumber(ARGV[5]), ARGV[6] == '1'
local head, waits, said, anew, first = ARGV[7], ARGV[8], ARGV[9], ARGV[10], 11
if not expires then
  return stands(first, number) and {'ok', last} or {'fenced'}
end
local again = last ~= number
if again and not stands(first, number) then
  return {'conflict', last}
end
if not again and first <= #ARGV then
  push(first)
end
local left = release and '' or found[6]
if head == '' or again and tonumber(headed or 0) == last then
  redis.call('HSET', hash, 'last', last, 'open', open and '1' or '0', 'until', left)
else
  open, suspended = false, waits == '1'
  redis.call('HSET', hash, 'last', last, 'open', '0', 'until', left,
             'head', head, 'headed', last, 'suspended', waits)
  if anew == '1' then
    redis.call('DEL', words)
  end
  if said ~= '' then
    redis.call('APPEND', words, said)
  end
end
if release then
  expires = nil
end
keep(life)
return {'ok', last}
""",
)

RENEW = _script(
    _CONVERSATION,
    _WRITING,
    _HELD,
    """
if not expires then
  return {'fenced'}
end
expires = now() + ARGV[5]
redis.call('HSET', hash, 'until', string.format('%.0f', expires))
keep(ARGV[4])
return {'ok'}
""",
)

READ = _script(
    _CONVERSATION,
    """
if last == 0 then
  return {'none'}
end
local known, number = ARGV[1], tonumber(ARGV[2])
if known == incarnation and number > last then
  return {'lost'}
end
local records = redis.call('LRANGE', log, known == incarnation and number or 0, -1)
local lease = expires and {token, process, tonumber(fence), expires - now()} or {}
return {'ok', incarnation, last, records, lease}
""",
)

DELETE = _script(
    """
local there = redis.call('EXISTS', KEYS[2])
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return there
"""
)

SHOW = _script(
    """
local shown = {redis.call('HGET', KEYS[1], 'head') or ''}
if shown[1] ~= '' and #ARGV > 0 then
  local said = redis.call('GET', KEYS[3]) or ''
  for i, word in ipairs(ARGV) do
    shown[i + 1] = string.find(said, word, 1, true) and 1 or 0
  end
end
return shown
"""
)

# The conversations of a scope, by the order of their changes: a sorted set of ids, and a counter. They have a hash tag
# of their own, because a script may not touch two of them where Redis is a cluster.

MOVE_UP = _script(
    """
local before = redis.call('ZSCORE', KEYS[1], ARGV[1])
local rank = redis.call('INCR', KEYS[2])
redis.call('ZADD', KEYS[1], rank, ARGV[1])
return {tonumber(before or 0), rank}
"""
)

# Pairs of an id and the rank it was seen with, and the rank that it gets if it still has that one; 0: it is removed.
PUT_BACK = _script(
    """
for i = 1, #ARGV, 3 do
  if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or 0) == tonumber(ARGV[i + 1]) then
    if ARGV[i + 2] == '0' then
      redis.call('ZREM', KEYS[1], ARGV[i])
    else
      redis.call('ZADD', KEYS[1], ARGV[i + 2], ARGV[i])
    end
  end
end
return 0
"""
)

RANK = _script("return tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0)")

PAGE = _script(
    """
local found = redis.call('ZREVRANGEBYSCORE', KEYS[1], ARGV[1], '-inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
return {redis.call('ZCARD', KEYS[1]), found}
"""
)

# Neighbours from anywhere, given a random number.
SAMPLE = _script(
    """
local all, count = redis.call('ZCARD', KEYS[1]), tonumber(ARGV[2])
local from = math.max(0, math.min(ARGV[1] % (all + count) - count, all - count))
return redis.call('ZRANGE', KEYS[1], from, from + count - 1, 'WITHSCORES')
"""
)

LAYOUT = _script(
    """
local found = redis.call('GET', KEYS[1])
if not found and ARGV[2] == '1' then
  redis.call('SET', KEYS[1], ARGV[1])
  return ARGV[1]
end
return found or '0'
"""
)
