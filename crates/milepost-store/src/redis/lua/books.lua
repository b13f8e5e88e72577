-- The books: what is kept beside tasks, by key and in the order in which it came. A change of them is: how many arguments
-- follow; what is struck out, each '-', book and key; and then what is kept, each '+', book, key, at, until ('' without
-- an end) and body.

-- Entries that are over go in passing, so many of a book at a time.
local SOME = 300
-- Books that were written to, and when; and whether a message was heard.
local written_books, heard = {}, false

local function after_books(at) return at + 1 + tonumber(ARGV[at]) end

local function each_line(at, strike, keep)
  local a, last = ARGV, after_books(at) - 1
  at = at + 1
  while at <= last do
    if a[at] == '-' then
      strike(a[at + 1], a[at + 2])
      at = at + 3
    else
      keep(a[at + 1], a[at + 2], a[at + 3], a[at + 4], a[at + 5])
      at = at + 6
    end
  end
end

-- Until when an entry is there ('' without an end); false when there is none.
local function end_of(book, key)
  local entry = call('HGET', M .. 'book:' .. book, key)
  return entry and string.match(entry, '^%d+ %-?%d+ (%-?%d*) ')
end

-- Refuses a change, before anything of it is written, by the first key that is in its book already.
local function kept_entry(at)
  local ends, clash = {}, nil
  local function strike(book, key) ends[book .. ' ' .. key] = false end
  local function keep(book, key, now, till)
    local name = book .. ' ' .. key
    local there = ends[name]
    if there == nil then there = end_of(book, key) end
    local is_over = there and there ~= '' and tonumber(there) <= tonumber(now)
    if there and not is_over then clash = clash or { 'kept', book, key } end
    ends[name] = till
  end
  if ARGV[at] ~= '0' then each_line(at, strike, keep) end
  return clash
end

local function strike_entry(book, key)
  call('HDEL', M .. 'book:' .. book, key)
  call('ZREM', M .. 'book-numbers:' .. book, key)
  call('ZREM', M .. 'book-ends:' .. book, key)
end

local function keep_entry(book, key, now, till, body)
  local no = call('HINCRBY', COUNTERS, 'entry', 1)
  local is_new = call('HSET', M .. 'book:' .. book, key, no .. ' ' .. now .. ' ' .. till .. ' ' .. body) == 1
  call('ZADD', M .. 'book-numbers:' .. book, no, key)
  if till ~= '' then
    call('ZADD', M .. 'book-ends:' .. book, till, key)
  elseif not is_new then
    call('ZREM', M .. 'book-ends:' .. book, key)
  end
  written_books[book] = math.max(written_books[book] or -math.huge, tonumber(now))
  heard = heard or book == 'messages'
end

-- What nobody has refused.
local function write_books(at)
  if ARGV[at] ~= '0' then each_line(at, strike_entry, keep_entry) end
end

-- Once a script has written all that it writes.
local function sweep_books()
  for book, now in pairs(written_books) do
    for _, key in ipairs(call('ZRANGEBYSCORE', M .. 'book-ends:' .. book, '-inf', now, 'LIMIT', 0, SOME)) do
      strike_entry(book, key)
    end
  end
end
