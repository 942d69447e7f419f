"""Scripts in Lua, chosen by a generator of random numbers, whose results tell one implementation from another.

Each function makes the source of one script. Those in LIBRARIES need nothing but Lua and its libraries, and return
one string; those in COMMANDS use the server.
"""

PRELUDE = """local function show(value, depth)
  local kind = type(value)
  if kind == 'string' then return string.format('%q', value) end
  if kind == 'number' then return string.format('%.17g', value) end
  if kind ~= 'table' then return kind == 'userdata' and value == cjson.null and 'null' or kind == 'function' and kind or tostring(value) end
  if (depth or 0) > 20 then return '...' end
  local fields, has_order = {}, true
  for key, field in pairs(value) do
    -- Where a table is a key, its address decides.
    has_order = has_order and type(key) ~= 'table'
    fields[#fields + 1] = '[' .. show(key, 20) .. ']=' .. show(field, (depth or 0) + 1)
  end
  if not has_order then table.sort(fields) end
  return '{' .. table.concat(fields, ' ') .. '}'
end
local function all(...)
  local values = {}
  for n = 1, select('#', ...) do values[n] = show((select(n, ...))) end
  return table.concat(values, ' ')
end
"""

# Numbers at which formats and conversions change.
NUMBERS = (
    "0", "-0", "1", "-1", "2", "10", "31", "32", "33", "127", "128", "-128", "-129", "255", "256", "32767", "32768",
    "-32768", "-32769", "65535", "65536", "2147483647", "2147483648", "-2147483648", "-2147483649", "4294967295",
    "4294967296", "9007199254740992", "9007199254740993", "99999999999999", "123456789012345", "1e15", "1e16", "1e17",
    "2^62", "2^63", "-2^63", "2^64", "1e100", "1e300", "-1e308*10", "1/0", "-1/0", "0/0", "0.1", "0.5", "1.5", "2.5",
    "-1.5", "-0.1", "1/3", "3.14159265358979", "1e-5", "1e-7", "0.0001", "0.00001", "5e-324", "2.2250738585072014e-308",
    "1.7976931348623157e308", "100000000000000000000", "0x10", "1e14", "12345678901234.5", "0.1+0.2",
)
WORDS = ("a", "b", "name", "", "x y", "1", "01", "-1", "1.5", "1e3", "0x1F", " 7 ", "nan", "inf", "true", "null", "\\0",
         "a\\0b", "\\255", "\\195\\164", "\\226\\130\\172", "\\\"", "\\\\", "/", "\\n", "\\r\\n", "\\t", "\\127", "\\1", "%d", "long " * 20)


def number(rand):
    if rand.random() < 0.7:
        return rand.choice(NUMBERS)
    return rand.choice((
        str(rand.randrange(-1 << rand.randrange(1, 64), 1 << rand.randrange(1, 64))),
        repr(rand.uniform(-1, 1) * 10 ** rand.randrange(-320, 308)),
        repr(rand.uniform(-1000, 1000)),
        f"{rand.uniform(-1000, 1000):.2f}",
    ))


def word(rand):
    return '"' + "".join(rand.choice(WORDS) for _ in range(rand.choice((1, 1, 1, 2, 3)))) + '"'


def scalar(rand):
    return rand.choice((number, number, word, word, lambda _: "true", lambda _: "false", lambda _: "nil", lambda _: "cjson.null"))(rand)


def key(rand):
    return rand.choice(("a", "b", "c", "ok2", "[1]", "[2]", "[3]", "[5]", "[0]", "[-1]", "[1.5]", '["1"]', '[""]', '["x y"]',
                        '["a\\0b"]', "[100]", "[2^31]", "[1e100]", "[true]", "z1", "z2", "z3", "z4"))


def value(rand, depth=3):
    kind = rand.random()
    if depth == 0 or kind < 0.5:
        return scalar(rand)
    items = [value(rand, depth - 1) for _ in range(rand.randrange(5))]
    if kind < 0.75:
        return "{" + ", ".join(items) + "}"
    return "{" + ", ".join(f"{key(rand)} = {item}" for item in items) + "}"


def caught(rand, expression):
    """The results of an expression or its error, with and without the position of a caller."""
    if rand.random() < 0.5:
        return PRELUDE + f"return all(pcall(function() local r = {{{expression}}} return unpack(r, 1, table.maxn(r)) end))"
    name, _, arguments = expression.partition("(")
    if not name.replace(".", "").replace("_", "").isalnum() or not expression.endswith(")"):
        return PRELUDE + f"return all(pcall(function() return {expression} end))"
    arguments = f", {arguments[:-1]}" if arguments != ")" else ""
    return PRELUDE + f"return all(pcall({name}{arguments}))"


def literal(bytes_):
    return '"' + "".join(f"\\{byte:03}" for byte in bytes_) + '"'


def mutated(rand, bytes_):
    bytes_ = bytearray(bytes_)
    for _ in range(rand.choice((0, 1, 1, 2, 3))):
        at = rand.randrange(len(bytes_) + 1)
        if rand.random() < 0.3:
            bytes_[at:at + 1] = b""
        elif rand.random() < 0.5:
            bytes_[at:at + 1] = bytes([rand.randrange(256)])
        else:
            bytes_[at:at] = bytes([rand.choice(b'0[]{},:"\\utfn-+.eE \x00\x80\xff')])
    return bytes(bytes_)


def cjson_encode(rand):
    return caught(rand, f"cjson.encode({value(rand, rand.choice((1, 3, 5)))})")


JSON = ('null', 'true', 'false', '0', '-0', '1', '-1.5e3', '1E400', '1e-400', '123456789012345678901234567890', '0.1', '"a"',
        '"\\u00e4\\ud83d\\ude00"', '"\\ud800"', '"\\udc00\\ud800"', '"\\ud83dx"', '"\\u12"', '"\\n\\t\\b\\f\\r\\/\\"\\\\"', '"\\x"',
        '"a\x00b"', '"unended', '[]', '{}', '[1,2,3]', '{"a":1,"b":[true,null]}', '{"a":{"b":{"c":[[[]]]}}}', '[1 2]', '{"a" 1}',
        '{a:1}', '[,]', '[1,]', '{"a":1,}', '0x1F', '01', '+1', 'nan', '-nan', 'inf', '-Infinity', 'infinit', 'NULL', 'nul',
        'truefalse', '1 2', ' \t\r\n[ 1 , 2 ] ', '"ä"', '[1.5.5]', '-', '--1', '1.', '.5', '1e', '1e+', '0x', '0x1p4', '[1}', '{1:2}',
        '{"a":1,"a":2}', '[null,1,null]', "", " ", "'a'", "\x00", "a\x00", "[\x00", "// x", '{"":0}', '9007199254740993', '1e22')


def json_text(rand, depth=3):
    if depth == 0 or rand.random() < 0.5:
        return rand.choice(JSON)
    items = [json_text(rand, depth - 1) for _ in range(rand.randrange(4))]
    if rand.random() < 0.5:
        return "[" + ",".join(items) + "]"
    return "{" + ",".join(f'"{rand.choice("abcdefgh")}{n}":{item}' for n, item in enumerate(items)) + "}"


def cjson_decode(rand):
    text = mutated(rand, json_text(rand, rand.choice((0, 2, 4))).encode())
    return caught(rand, f"cjson.decode({literal(text)})")


def cjson_both(rand):
    text = literal(json_text(rand, 4).encode())
    return caught(rand, f"cjson.encode(cjson.decode({text}))")


def cjson_settings(rand):
    setting = rand.choice(("encode_sparse_array", "encode_max_depth", "decode_max_depth", "encode_number_precision",
                           "encode_keep_buffer", "encode_invalid_numbers", "decode_invalid_numbers"))
    choices = ("true", "false", "nil", '"on"', '"off"', '"null"', '"x"', "0", "1", "3", "14", "15", "-1", "2^31", "2^40", "{}", '"7"')
    arguments = ", ".join(rand.choice(choices) for _ in range(rand.randrange(5)))
    encoded, decoded = value(rand, 4), literal(json_text(rand).encode())
    return PRELUDE + (f"local json = cjson.new() local first = all(pcall(json.{setting}, {arguments}))\n" if arguments else
                      f"local json = cjson.new() local first = all(pcall(json.{setting}))\n") + \
        f"return first .. all(json.{setting}()) .. all(pcall(json.encode, {encoded})) .. all(pcall(json.decode, {decoded}))"


def cjson_depth(rand):
    depth = rand.choice((999, 1000, 1001, 20))
    kind = rand.choice(("json.encode(deep)", "json.decode(('['):rep(depth) .. (']'):rep(depth))", "json.decode(('{\"a\":'):rep(depth) .. 1 .. ('}'):rep(depth))"))
    limit = rand.choice(("", "", "json.encode_max_depth(10) json.decode_max_depth(10)", "json.encode_max_depth(100000) json.decode_max_depth(100000) depth = 3900"))
    return f"local json, depth = cjson.new(), {depth} {limit} local deep = 1 for n = 1, depth do deep = {{deep}} end " \
        f"local ok, text = pcall(function() return {kind} end) return tostring(ok) .. (ok and type(text) or text)"


def cmsgpack_pack(rand):
    arguments = ", ".join(value(rand, 4) for _ in range(rand.choice((0, 1, 1, 1, 2, 3))))
    return caught(rand, f"cmsgpack.pack({arguments})")


def msgpack(rand, depth=3):
    kind = rand.randrange(24)
    if kind < 8 or depth == 0:
        return bytes([rand.choice((0, 1, 127, 0xe0, 0xff, 0xc0, 0xc2, 0xc3, 0xa0, 0xc1, 0xc4))])
    if kind < 16:
        code, size = rand.choice(((0xca, 4), (0xcb, 8), (0xcc, 1), (0xcd, 2), (0xce, 4), (0xcf, 8), (0xd0, 1), (0xd1, 2), (0xd2, 4), (0xd3, 8)))
        return bytes([code]) + bytes(rand.choice((0, 1, 0x7f, 0x80, 0xff, rand.randrange(256))) for _ in range(size))
    if kind < 20:
        text = bytes(rand.randrange(256) for _ in range(rand.randrange(6)))
        head = rand.choice((bytes([0xa0 | len(text)]), b"\xd9" + bytes([len(text)]), b"\xda\x00" + bytes([len(text)]),
                            b"\xdb\x00\x00\x00" + bytes([len(text)])))
        return head + text
    count = rand.randrange(4)
    heads = ((bytes([0x90 | count]), b"\xdc\x00" + bytes([count]), b"\xdd\x00\x00\x00" + bytes([count])),
             (bytes([0x80 | count]), b"\xde\x00" + bytes([count]), b"\xdf\x00\x00\x00" + bytes([count])))[kind % 2]
    return rand.choice(heads) + b"".join(msgpack(rand, depth - 1) for _ in range(count * (1 + kind % 2)))


def cmsgpack_unpack(rand):
    text = literal(mutated(rand, b"".join(msgpack(rand) for _ in range(rand.choice((0, 1, 1, 2, 4))))))
    small = ("0", "1", "2", "3", "-1", "100", "1.5", "nil", '"1"', '"x"')
    return caught(rand, rand.choice((
        f"cmsgpack.unpack({text})",
        f"cmsgpack.unpack({text})",
        f"cmsgpack.unpack_one({text}, {rand.choice(small)})",
        f"cmsgpack.unpack_limit({text}, {rand.choice(small)}, {rand.choice(small)})",
        f"cmsgpack.unpack_limit({text}, {rand.choice(small)})",
        f"cmsgpack.unpack(cmsgpack.pack({value(rand, 4)}))",
        f"cmsgpack.unpack(('\\145'):rep({rand.choice((10, 3000, 3990))}) .. '\\1')",
        f"#cmsgpack.pack(cmsgpack.unpack(('\\145'):rep({rand.choice((10, 16, 17, 18))}) .. '\\1'))",
        f"#{{cmsgpack.unpack(('\\1'):rep({rand.choice((10, 100, 7000, 9000))}))}}",
    )))


def struct_format(rand):
    options = ("b", "B", "h", "H", "l", "L", "T", "i", "I", "i1", "i2", "i3", "I8", "i16", "I32", "i33", "i0", "f", "d", "s", "c", "c0", "c3",
               "bc0", "Bc0", "x", "<", ">", "!", "!1", "!2", "!4", "!8", "!3", "!0", " ", "q", "?", "c99", "i99999999999", "!16")
    return "".join(rand.choice(options) for _ in range(rand.randrange(6)))


def struct_pack(rand):
    arguments = "".join(", " + rand.choice((number, number, word, scalar))(rand) for _ in range(rand.randrange(7)))
    return caught(rand, f'struct.pack("{struct_format(rand)}"{arguments})')


def struct_unpack(rand):
    data = bytes(rand.choice((0, 1, 2, 0x7f, 0x80, 0xff, rand.randrange(256))) for _ in range(rand.randrange(40)))
    start = rand.choice(("", "", "", ", 1", ", 2", ", 0", ", -1", ", 100", ', "x"', ", nil"))
    return caught(rand, rand.choice((
        f'struct.unpack("{struct_format(rand)}", {literal(data)}{start})',
        f'struct.unpack("{struct_format(rand)}", {literal(data)}{start})',
        f'struct.size("{struct_format(rand)}")',
    )))


def bits(rand):
    name = rand.choice(("tobit", "tohex", "bnot", "band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror", "bswap"))
    choices = (number, number, number, number, word)
    if name == "tohex":
        # redis-server does not survive the smallest integer as a count of digits.
        digits = rand.choice(("", ", 0", ", 1", ", 4", ", 8", ", 9", ", -1", ", -8", ", -100", ", 2.5", ", nil", ', "x"'))
        return caught(rand, f"bit.tohex({rand.choice(choices)(rand)}{digits})")
    arguments = ", ".join(rand.choice(choices)(rand) for _ in range(rand.choice((0, 1, 2, 2, 2, 3, 4))))
    return caught(rand, f"bit.{name}({arguments})")


def number_format(rand):
    specification = rand.choice(("%d", "%5d", "%-5d|", "%05d", "%+d", "% d", "%i", "%u", "%c", "%x", "%X", "%#x", "%o", "%e", "%E", "%f", "%.0f",
                                 "%.3f", "%10.2f", "%g", "%G", "%.14g", "%.17g", "%#g", "%q", "%s", "%5s", "%-5s|", "%.2s", "%%", "%", "%y", "%123d", "%.123f"))
    if specification == "%c":
        return caught(rand, f'string.format("%c", {rand.randrange(256)})')
    # C leaves the conversion of what an integer cannot hold to the machine.
    argument = rand.choice((number, word))(rand) if specification[-1] not in "diuxXo" else rand.choice(("0", "1", "-1", "255", "-300", "2^31", "1.5", "2^53", '"12"', '"x"', "{}"))
    return caught(rand, rand.choice((
        f'string.format("{specification}", {argument})',
        f"tostring({number(rand)})",
        f"{number(rand)} .. ''",
        f"tonumber({word(rand)})",
        f"tonumber({word(rand)}, {rand.choice((2, 8, 10, 16, 36, 37, 1))})",
        f"math.floor({number(rand)}), math.ceil({number(rand)}), math.abs({number(rand)})",
        f"math.fmod({number(rand)}, {number(rand)}), {number(rand)} % {number(rand)}",
        f"math.max({number(rand)}, {number(rand)}), math.min({number(rand)}, {number(rand)})",
        f"math.frexp({number(rand)})", f"math.modf({number(rand)})", f"math.ldexp({number(rand)}, {rand.randrange(-30, 30)})",
        f"math.sqrt({number(rand)}), math.log10({number(rand)})",
    )))


PATTERNS = ("a", ".", "%a+", "%d*", "%w-", "[ab]+", "[^a]", "(a)(b)", "()", "(a*(.)%w(%s*))", "%1", "(a)%1", "%b()", "%f[%w]", "^a", "a$", "%",
            "[a", "%f", "(", ")", "^", "", "%.", "-", ".-b", "%s*$", "[%]]", "[]]", "%z", "x?", "(.)(.)(.)", "%b", "[a-", "%u%l", "[%a_][%w_]*")
SUBJECTS = ("", "a", "ab", "hello world", "aaab", "(a(b)c)", "key=value, k2=v2", "a.b.c", "  trim  ", "x" * 30, "THE (quick) fox", "a\\0b", "%d", "123 456")


def strings(rand):
    subject, pattern = f'"{rand.choice(SUBJECTS)}"', f'"{rand.choice(PATTERNS)}{rand.choice(PATTERNS)}"'
    small = rand.choice(("0", "1", "2", "-1", "-3", "100", "nil", "1.9", '"2"'))
    return caught(rand, rand.choice((
        f"string.find({subject}, {pattern}, {small})", f"string.find({subject}, {pattern}, {small}, true)", f"string.match({subject}, {pattern}, {small})",
        f"string.gsub({subject}, {pattern}, {rand.choice(('%0', '%1', '%2', '%', 'x', ''))!r})",
        f"string.gsub({subject}, {pattern}, {{a = 1, ab = true, b = false}})", f"string.gsub({subject}, {pattern}, string.upper, {small})",
        f"string.gsub({subject}, {pattern}, {scalar(rand)})", f"string.gmatch({subject}, {pattern})()", f"string.gfind({subject}, {pattern})",
        f"string.sub({subject}, {small}, {rand.choice(('1', '-1', '3', 'nil'))})", f"string.rep({subject}, {small})", f"string.byte({subject}, {small}, -1)",
        f"string.char({rand.choice(('65', '65, 66', '256', '-1', '0', ''))})", f"string.reverse({subject})", f"string.upper({subject}), string.lower({subject})",
        f"string.len({subject}), #{subject}", f"table.concat({value(rand, 1)}, {rand.choice((',', ''))!r})", f"table.getn({value(rand, 1)}), #{value(rand, 1)}",
        f"unpack({value(rand, 2)})", f"select({small}, {subject}, 2, 3)", f"table.maxn({value(rand, 2)})", f"table.sort({value(rand, 2)})",
        f"table.insert({value(rand, 1)}, {small}, 5)", f"table.remove({value(rand, 1)}, {small})", f"next({value(rand, 1)})", f"{scalar(rand)} < {scalar(rand)}",
        f"{scalar(rand)} .. {scalar(rand)}", f"{scalar(rand)} == {scalar(rand)}", f"{value(rand, 1)}.x.y", f"-{scalar(rand)} + {scalar(rand)}",
    )))


LIBRARIES = (cjson_encode, cjson_encode, cjson_decode, cjson_decode, cjson_both, cjson_settings, cjson_depth, cmsgpack_pack, cmsgpack_unpack,
             cmsgpack_unpack, struct_pack, struct_unpack, bits, number_format, strings, strings)


def reply(rand):
    """A value that has to become a reply."""
    special = ("{ok = %s}", "{err = %s}", "{double = %s}", "{map = {a = %s, b = 2}}", "{set = {%s}}", "{set = {x = true}}", "{big_number = %s}",
               "{verbatim_string = {format = 'txt', string = %s}}", "redis.status_reply(%s)", "redis.error_reply(%s)", "{double = 1.5, ok = %s}",
               "{1, nil, %s}", "{%s, {ok = 'in'}, {err = 'in'}}", "{map = %s}", "{err = %s, line = 1, source = 'x'}", "setmetatable({}, {__index = {ok = %s}})")
    made = rand.choice(special).replace("%s", scalar(rand)) if rand.random() < 0.5 else value(rand, 3)
    protocol = rand.choice(("", "", "redis.setresp(2) ", "redis.setresp(3) ", "redis.setresp(4) "))
    return f"{protocol}return {made}"


SETUP = (("SET", "string", "text"), ("SET", "number", "10"), ("RPUSH", "list", "a", "b", "c"), ("HSET", "hash", "f", "v"),
         ("SADD", "set", "m"), ("ZADD", "zset", "1.5", "a", "2", "b"), ("XADD", "stream", "1-1", "f", "v"))
CALLS = ("'get', 'string'", "'get', 'none'", "'get', 'list'", "'lrange', 'list', 0, -1", "'hgetall', 'hash'", "'smembers', 'set'",
         "'zrange', 'zset', 0, -1, 'withscores'", "'zscore', 'zset', 'a'", "'zscore', 'zset', 'none'", "'set', 'string', 'text'", "'incr', 'number'",
         "'incr', 'string'", "'incrbyfloat', 'number', 0.5", "'set', 'number', 10", "'set', 'number', '10'", "'set', 'float', 3.25", "'get', 'float'",
         "'exists', 'none'", "'mget', 'string', 'none', 'list'", "'type', 'hash'", "'xrange', 'stream', '-', '+'", "'ping'", "'echo', 'x'", "'nosuch'",
         "'nosuch', 1, 'b'", "'get'", "'get', 1, 2", "", "{}", "nil", "'get', nil", "'get', {}", "'get', true", "1", "'config', 'nosuch'", "'object', 'freq', 'x', 'y'",
         "'lpop', 'none', 2", "'hget', 'hash', 'none'", "'time', 1", "'subscribe', 'x'", "'eval', 'return 1', 0", "'multi'", "'blpop', 'none', 0", "'client', 'list', 'x', 'y'",
         "'sintercard', 1, 'set'", "'hmget', 'hash', 'f', 'none'", "'getrange', 'string', 0, -1", "'zrank', 'zset', 'none'", "'lpos', 'list', 'none'", "'geopos', 'none', 'x'")


def call(rand):
    protocol = rand.choice(("", "", "redis.setresp(3) "))
    arguments = rand.choice(CALLS)
    return protocol + rand.choice((
        f"return redis.call({arguments})", f"return redis.pcall({arguments})", f"local r = redis.pcall({arguments}) return type(r) == 'table' and r.err or r",
        f"{PRELUDE}return show(redis.pcall({arguments}))", f"{PRELUDE}return all(pcall(redis.call, {arguments or 'nil'}))",
        f"local ok, e = pcall(redis.call, {arguments or 'nil'}) return {{tostring(ok), type(e), e}}",
        f"local r = redis.call({arguments})\nreturn r", f"return {{redis.pcall({arguments}), 'after'}}",
    ))


NAMES = ("print", "loadfile", "dofile", "load", "loadstring", "require", "module", "package", "io", "os", "debug", "newproxy", "setfenv", "getfenv", "coroutine",
         "collectgarbage", "gcinfo", "rawset", "rawget", "rawequal", "setmetatable", "getmetatable", "_G", "_VERSION", "string", "table", "math", "redis", "server",
         "cjson", "cmsgpack", "struct", "bit", "KEYS", "ARGV", "nosuch", "arg", "xpcall", "pcall", "error", "assert", "next", "pairs", "ipairs", "select", "tonumber",
         "tostring", "type", "unpack", "__redis__err__handler", "__redis__compare_helper", "jit", "utf8", "bit32")


def sandbox(rand):
    name = rand.choice(NAMES)
    library = rand.choice(("string", "table", "math", "redis", "cjson", "cmsgpack", "struct", "bit", "coroutine", "_G", "os"))
    return rand.choice((
        f"return type({name})", f"return type(rawget(_G, '{name}'))", f"{name} = 1 return 1", f"function {name}() end return 1", f"_G.{name} = nil return 1",
        f"{library}.{name} = 1 return 1", f"{library}.new_one = 1 return 1", f"rawset({library}, 'x', 1) return 1", f"return tostring(getmetatable({library}) ~= nil)",
        f"setmetatable({library}, {{}}) return 1", f"return pcall(function() {name}.x = 1 end) and 1 or 0", f"return {{pcall(function() return {name} end)}}",
        f"return type(getmetatable('').__index)", "getmetatable('').__index = 1 return 1", "getmetatable('').x = 1 return 1", f"local t = {{}} for k in pairs({library}) do t[#t + 1] = tostring(k) end table.sort(t) return t",
        f"return {{pcall(loadstring, 'return {name}')}} and 1", f"local f = loadstring('{name} = 1') return f and {{pcall(f)}}", "return #KEYS + #ARGV", "KEYS = nil return 1", "KEYS[1] = 'x' return KEYS",
        "return _VERSION", f"return tostring({library} == _G.{library})", "return select('#', unpack({}, 1, 200))", f"table.insert({library}, 1) return 1",
        "return tostring(pcall(setfenv, 1, {}))", "return type(coroutine.wrap(function() coroutine.yield(1) end)())", "return {pcall(coroutine.wrap(function() error('in') end))}",
        "local co = coroutine.create(function() return redis.call('get', 'string') end) return {coroutine.resume(co)}", "redis.sha1hex() return 1", "return redis.sha1hex('a')", "return redis.sha1hex(1)",
        "return redis.log('x')", "return redis.log(9, 'x')", "return redis.log(redis.LOG_DEBUG)", "return redis.set_repl(9)", "return redis.set_repl()", "return redis.setresp('x')", "return tostring(redis.replicate_commands())",
        "return redis.acl_check_cmd('get', 'x') and 1", "return redis.acl_check_cmd('get') and 1", "return redis.acl_check_cmd('config') and 1", "return redis.acl_check_cmd('config', 'nosuch')", "return redis.acl_check_cmd('nosuch')", "return redis.acl_check_cmd()", "return {redis.LOG_DEBUG, redis.LOG_VERBOSE, redis.LOG_NOTICE, redis.LOG_WARNING, redis.REPL_ALL, redis.REPL_NONE, redis.REPL_AOF, redis.REPL_SLAVE, redis.REPL_REPLICA}",
        "return redis.error_reply()", "return redis.error_reply(1)", "return redis.error_reply('-X y')", "return redis.error_reply('word')", "return redis.error_reply('a\\nb')", "return redis.status_reply('a', 'b')", "return redis.status_reply({})",
        "return redis.breakpoint() and 1 or 0", "redis.debug('x') return 1", "return redis.nosuch", "return redis.register_function('x', function() end)", "return table.concat({math.random(), math.random(10), math.random(5, 6)}, ' ')",
        "math.randomseed(7) return {math.random(1000), math.random(1000), tostring(math.random())}", "return string.dump(function() end) and 1", "return load and 1 or 0", "return tostring(rawequal(_G, _G))",
    ))


def failing(rand):
    # redis-server 7.0 does not survive `error` with a table that has no `err`.
    filler = "\n" * rand.randrange(3)
    return filler + rand.choice((
        "error('text')", "error('text', 0)", "error('text', 2)", "error({err = 'MY text'})", "error({err = 'text'})", "error()", "error(nil)", "error(1)", "error(true)",
        "error(redis.error_reply('MY own'))", "local x = nil\nreturn x.y", "local x = {}\nx.y.z = 1", "nosuch()", "return nosuch", "return 1 + {}", "return #5", "return {} .. 'x'", "return {} < {}", "('x')()",
        "return 1 +", "x x", "for", "local function f() f() end f()", "local function f() return f() + 1 end return f()", "return ('x'):rep(-1)", "assert(false)", "assert(nil, 'text')", "assert(false, {err = 'MY table'})",
        "local function f()\nerror('deep')\nend\nf()", "return pcall(error, 'x')", "return {pcall(error, {err = 'x'})}", "return xpcall(function() error('a') end, function(e) return e .. 'b' end)",
        "return redis.call('get', 'list')", "return {redis.pcall('get', 'list')}", "local r = redis.pcall('get', 'list')\nerror(r)", "local r = redis.pcall('get', 'list')\nerror(r.err)", "string.rep()", "('x'):bad()", "return string.format('%d', 'x')",
        "return tostring(setmetatable({}, {__tostring = function() return 'own' end}))", "return setmetatable({}, {__tostring = 1})", "#!lua\nreturn 1", "#!lua flags=nosuch\nreturn 1", "#!lua name=x\nreturn 1", "#!python\nreturn 1", "#!lua flags=no-writes\nreturn redis.call('set', 'x', 1)",
        "#!lua flags=no-writes\nreturn redis.pcall('set', 'x', 1)", "#!lua flags=no-writes,allow-stale\nreturn redis.call('get', 'string')", "#!lua\nreturn x", "#!\nreturn 1", "#!lua", "", " ", "-- nothing", "return", "return nil", "goto x",
        "return 'a' 'b'", "local t = {} t[nil] = 1", "local t = {} t[0/0] = 1", "return unpack({}, 1, 10000)", "return unpack({}, 1, 1e9)", "local s = 'x' while true do s = s .. s if #s > 5000 then error(s:sub(1, 300)) end end",
        "return cjson.decode('[1')", "return cjson.encode(error)", "return cmsgpack.unpack('\\193')", "return struct.pack('i33', 1)", "return bit.band()", "return string.find('a', '[')", "string.gsub('abc', 'b', function() error('in') end)", "string.gsub('abc', 'b', function() local x; return x.y end)",
        "table.sort({3, 2, 1}, function() error('in') end)", "return table.sort({3, 1, 2, 5, 4}, function(a, b) return true end)", "return table.concat({{}})", "for n = 1, 'x' do end", "local a <const> = 1", "return '\\300'", "return 'unended", "return [[long\n]] .. nil",
    ))


COMMANDS = (reply, reply, call, call, sandbox, sandbox, failing)
