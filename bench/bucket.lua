-- A token bucket on Redis, as good as it gets there: one round trip, the
-- server's own clock, and nothing written when the request is refused.
--
-- KEYS[1] bucket; ARGV capacity, units per period, period (us), cost
-- Replies allowed, capacity, remaining, wait (ms), reset (ms).
local capacity = tonumber(ARGV[1])
local count = tonumber(ARGV[2])
local period = tonumber(ARGV[3])
local cost = tonumber(ARGV[4])

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local state = redis.call('HMGET', KEYS[1], 'used', 'at')
local used = 0
if state[1] then
  used = math.max(0, tonumber(state[1]) - (now - tonumber(state[2])) * count / period)
end

local allowed, wait = 0, 0
if used + cost <= capacity then
  allowed = 1
  used = used + cost
  redis.call('HSET', KEYS[1], 'used', used, 'at', now)
  redis.call('PEXPIRE', KEYS[1], math.max(1, math.ceil(used * period / count / 1000)))
else
  wait = math.ceil((used + cost - capacity) * period / count / 1000)
end
return {allowed, capacity, math.floor(capacity - used), wait, math.ceil(used * period / count / 1000)}
