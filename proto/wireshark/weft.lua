-- Wireshark dissector for Weft, version 1 of the protocol (proto/SPEC.md).
--
-- HEADER, HELLO and KEYS below are the layout: the fields, their offsets and their masks are all made
-- from these rows, and a test holds the rows against SPEC.md and the Rust crate. The names of
-- codes are SPEC's. Everything that is read is bounded by what was captured first, so hostile
-- or cut-off packets give an expert info and never a Lua error.

-- name, first byte, bit within the byte from the top, bits                          SPEC#header
local HEADER = {
    { "version", 0, 0, 4 },
    { "kind", 0, 4, 4 },
    { "flags", 1, 0, 5 },
    { "outcome", 1, 5, 3 },
    { "job", 2, 0, 16 },
    { "cookie", 4, 0, 32 },
    { "group", 8, 0, 32 },
    { "chunk", 12, 0, 32 },
    { "element_type", 16, 0, 4 },
    { "operation", 16, 4, 4 },
    { "exponent", 17, 0, 8 },
    { "count", 18, 0, 16 },
    { "crc", 20, 0, 32 },
    { "members", 24, 0, 64 },
}

-- name, first byte, bytes                                                        SPEC#handshake
local HELLO = {
    { "phase", 0, 1 },
    { "reason", 1, 1 },
    { "probe_len", 2, 2 },
    { "epoch", 4, 4 },
    { "life", 8, 8 },
    { "token", 16, 8 },
    { "session", 24, 8 },
    { "cookie_up", 32, 4 },
    { "cookie_down", 36, 4 },
    { "window", 40, 2 },
    { "shards", 42, 2 },
    { "elements", 44, 2 },
    { "integrity", 46, 1 },
    { "overflow", 47, 1 },
    { "fan_in", 48, 4 },
    { "step_count", 52, 4 },
    { "low_step", 56, 4 },
    { "step_bits", 60, 2 },
    { "exponent", 62, 1 },
    { "exponent_mode", 63, 1 },
    { "mask", 64, 8 },
}

-- name, first byte, bytes                                                             SPEC#keys
local KEYS = {
    { "row_len", 0, 2 },
    { "entries", 2, 2 },
    { "floors", 4, 2 },
    { "hops", 6, 1 },
    { "peer", 7, 1 },
    { "number", 8, 8 },
    { "low", 16, 8 },
}

local UDP_LEN = 8
local HEADER_LEN = 32
local BODY_LEN = 72
local KEYS_LEN = 24
local ROW_KEYS = 0x9000
local TABLES_MAX = 0x1000
local STEP_BITS_MAX = 8192
local VERSION = 1
local EXPONENT_MAX = 126
local PORT_BASE = 0x5745
local ELEMENTS_SHOWN = 4

local KIND = {
    [1] = "CONTRIB",
    [2] = "ANSWER",
    [3] = "ACK",
    [4] = "STATE",
    [5] = "PULL",
    [6] = "HELLO",
    [7] = "STATUS",
}

local FLAGS = {
    [0x80] = "RETRANSMIT",
    [0x40] = "DIRECT",
    [0x20] = "REPLICA",
    [0x10] = "CLAMPED",
    [0x08] = "CONGESTION",
}

local OUTCOME = {
    [0] = "NONE",
    [1] = "STAGED",
    [2] = "COMMITTED",
    [3] = "VOID",
    [4] = "DROPPED",
    [5] = "HAVE",
    [6] = "STALE",
    [7] = "WAIT",
}

-- Outcomes of an allreduce, by the kind of the datagram.
local OUTCOME_OF_KIND = {
    ["CONTRIB.1"] = "LAST",
    ["HELLO.1"] = "LAST",
    ["STATE.3"] = "LEFT",
    ["STATE.4"] = "MISMATCH",
}

local ELEMENT_TYPE = {
    [0] = "none",
    [1] = "i32",
    [2] = "f32",
    [3] = "bf16",
}

local OPERATION = {
    [0] = "none",
    [1] = "sum",
    [2] = "max",
}

local PHASE = {
    [1] = "HELLO",
    [2] = "CHALLENGE",
    [3] = "JOIN",
    [4] = "WELCOME",
    [5] = "WAITING",
    [6] = "REFUSED",
    [7] = "CLOSE",
    [8] = "CLOSED",
    [9] = "LISTEN",
    [10] = "DEAF",
}

local REASON = {
    [0] = "NONE",
    [1] = "UNKNOWN_GROUP",
    [2] = "MEMBER_LOST",
    [3] = "OTHER_SESSION",
    [4] = "OTHER_ELEMENTS",
}

local INTEGRITY = {
    [0] = "none",
    [1] = "crc32c",
    [2] = "checksum16",
}

local OVERFLOW = {
    [0] = "wrap",
    [1] = "clamp",
}

local EXPONENT_MODE = {
    [0] = "agreed",
    [1] = "fixed",
}

-- As Wireshark's own checksums.
local CRC_STATUS = {
    [0] = "Bad",
    [1] = "Good",
    [2] = "Unverified",
    [3] = "Not present",
}

local ELEMENT_LEN = { [0] = 0, [1] = 4, [2] = 4, [3] = 2 }
local HEADER_VALUES =
    { kind = KIND, outcome = OUTCOME, element_type = ELEMENT_TYPE, operation = OPERATION }
local HELLO_VALUES = {
    phase = PHASE,
    reason = REASON,
    integrity = INTEGRITY,
    overflow = OVERFLOW,
    exponent_mode = EXPONENT_MODE,
}
local HEXADECIMAL = {
    flags = true, cookie = true, group = true, crc = true, members = true,
    life = true, token = true, session = true, cookie_up = true, cookie_down = true, mask = true,
    ["keys.number"] = true, ["keys.low"] = true,
}

local weft = Proto("weft", "Weft In-Network Aggregation")

local fields = {}

local function make_field(abbreviation, name, bits, values, mask)
    local base = HEXADECIMAL[name] and base.HEX or base.DEC
    if name == "exponent" then
        return ProtoField.int8(abbreviation, name, base)
    elseif bits <= 8 then
        return ProtoField.uint8(abbreviation, name, base, values, mask)
    elseif bits == 16 then
        return ProtoField.uint16(abbreviation, name, base)
    elseif bits == 32 then
        return ProtoField.uint32(abbreviation, name, base)
    end
    return ProtoField.uint64(abbreviation, name, base)
end

for _, row in ipairs(HEADER) do
    local name, bit, bits = row[1], row[3], row[4]
    -- Flags keep their place in the byte, as SPEC gives their values.
    local mask = bits < 8 and name ~= "flags" and (2 ^ bits - 1) * 2 ^ (8 - bit - bits) or nil
    fields[name] = make_field("weft." .. name, name, bits, HEADER_VALUES[name], mask)
end
for _, row in ipairs(HELLO) do
    local name = row[1]
    fields["hello." .. name] =
        make_field("weft.hello." .. name, name, row[3] * 8, HELLO_VALUES[name], nil)
end
for _, row in ipairs(KEYS) do
    local name = row[1]
    fields["keys." .. name] =
        make_field("weft.keys." .. name, "keys." .. name, row[3] * 8, nil, nil)
end
fields["keys.key"] = ProtoField.uint64("weft.keys.key", "key")
for value, name in pairs(FLAGS) do
    fields["flags." .. name] =
        ProtoField.bool("weft.flags." .. name:lower(), name, 8, nil, value)
end
-- Rows with a meaning of their own (SPEC, "Channels").
local ROWS = {
    [0xfffc] = "decision log", [0xfffd] = "model", [0xfffe] = "box channel",
    [0xffff] = "worker channel",
}
for rank = 0, 63 do ROWS[0x8000 + rank] = string.format("direct updates of rank %d", rank) end
-- Tables of keys (SPEC, "Keys"); names for the first of them, as many as anybody has.
for table = 0, 63 do ROWS[ROW_KEYS + table] = string.format("keys of table %d", table) end
-- Ordinary rows have no names, so ROWS cannot be the field's: those would be "Unknown".
fields["group.row"] = ProtoField.uint16("weft.group.row", "row", base.DEC)
fields["group.generation"] = ProtoField.uint16("weft.group.generation", "generation")
fields["crc.status"] = ProtoField.uint8("weft.crc.status", "CRC status", base.DEC, CRC_STATUS)
fields["members.count"] = ProtoField.uint8("weft.members.count", "members counted")
fields["members.rank"] = ProtoField.uint8("weft.members.rank", "rank")
-- The DSCP of the IP header, by which hosts tell jobs apart (SPEC, "Labels and bands").
fields["label"] = ProtoField.uint8("weft.label", "label")
fields["payload"] = ProtoField.bytes("weft.payload", "payload")
fields["element.i32"] = ProtoField.int32("weft.element.i32", "element")
fields["element.f32"] = ProtoField.float("weft.element.f32", "element")
fields["element.bf16"] = ProtoField.float("weft.element.bf16", "element")
fields["hello.bitmap"] = ProtoField.bytes("weft.hello.bitmap", "bitmap")
fields["hello.padding"] = ProtoField.bytes("weft.hello.padding", "padding")
weft.fields = fields

local udp_length = Field.new("udp.length")
local dscp_fields = { Field.new("ip.dsfield.dscp"), Field.new("ipv6.tclass.dscp") }

local experts = {
    malformed = ProtoExpert.new(
        "weft.malformed", "Malformed Weft datagram", expert.group.MALFORMED, expert.severity.ERROR),
    crc = ProtoExpert.new(
        "weft.crc.bad", "Bad CRC32C", expert.group.CHECKSUM, expert.severity.ERROR),
    retransmit = ProtoExpert.new(
        "weft.retransmit", "Sent again", expert.group.SEQUENCE, expert.severity.NOTE),
    congestion = ProtoExpert.new(
        "weft.congestion", "Congestion on the way up", expert.group.SEQUENCE,
        expert.severity.NOTE),
    stale = ProtoExpert.new(
        "weft.stale", "Chunk or cookie is not current", expert.group.SEQUENCE,
        expert.severity.NOTE),
    refused = ProtoExpert.new(
        "weft.refused", "The box refused the member", expert.group.RESPONSE_CODE,
        expert.severity.WARN),
}
weft.experts = experts

weft.prefs.port = Pref.uint("UDP port base", PORT_BASE, "The port that the box listens on")

-- Lua 5.2 has bit32, older Wiresharks bring bit, Lua 5.3 has operators that 5.2 cannot parse.
local bxor
if bit32 then
    bxor = bit32.bxor
elseif bit then
    bxor = function(a, b) return bit.bxor(a, b) % 4294967296 end
else
    bxor = load("return function(a, b) return a ~ b end")()
end

local crc_table = {}
for index = 0, 255 do
    local entry = index
    for _ = 1, 8 do
        local odd = entry % 2 == 1
        entry = (entry - entry % 2) / 2
        if math.tointeger then entry = math.tointeger(entry) end
        if odd then entry = bxor(entry, 0x82f63b78) end
    end
    crc_table[index] = entry
end

-- The CRC of a datagram with its CRC field taken as 0; a computed 0 is sent as all ones.
local function crc32c(octets)
    local crc = 0xffffffff
    for index = 1, #octets do
        local octet = (index > 20 and index <= 24) and 0 or octets:byte(index)
        local low = crc % 256
        local high = (crc - low) / 256
        if math.tointeger then high = math.tointeger(high) end
        crc = bxor(crc_table[bxor(low, octet)], high)
    end
    crc = 0xffffffff - crc
    return crc == 0 and 0xffffffff or crc
end

local function parse(tvb)
    local header = {
        version = tvb(0, 1):bitfield(0, 4),
        kind = tvb(0, 1):bitfield(4, 4),
        flags = tvb(1, 1):uint() - tvb(1, 1):uint() % 8,
        outcome = tvb(1, 1):bitfield(5, 3),
        row = tvb(8, 2):uint(),
        element_type = tvb(16, 1):bitfield(0, 4),
        operation = tvb(16, 1):bitfield(4, 4),
        exponent = tvb(17, 1):int(),
        count = tvb(18, 2):uint(),
        crc = tvb(20, 4):uint(),
    }
    return header
end

-- Rows of tables of keys: their datagrams have a body, whatever their kind.
local function is_of_keys(row)
    return row >= ROW_KEYS and row < ROW_KEYS + TABLES_MAX
end

local function outcome_name(header)
    local own = OUTCOME_OF_KIND[(KIND[header.kind] or "") .. "." .. header.outcome]
    return not is_of_keys(header.row) and own or OUTCOME[header.outcome]
end

-- nil, or what is wrong with a header, in the words and the order of the Rust crate.
local function fault(header, payload_len)
    if header.version ~= VERSION then return "unknown protocol version" end
    local element_len = ELEMENT_LEN[header.element_type]
    if not KIND[header.kind] or not element_len or not OPERATION[header.operation] then
        return "unknown kind, element type or operation"
    end
    if header.exponent < -EXPONENT_MAX or header.exponent > EXPONENT_MAX then
        return "scale exponent outside -126 to 126"
    end
    local kind = KIND[header.kind]
    local fits
    if kind == "CONTRIB" and outcome_name(header) == "LAST" then
        -- Padding may follow.
        fits = payload_len >= header.count * element_len
    elseif kind == "CONTRIB" or kind == "ANSWER" then
        fits = payload_len == header.count * element_len
    elseif kind == "HELLO" then
        fits = payload_len >= BODY_LEN
    elseif is_of_keys(header.row) then
        fits = payload_len == header.count * element_len
    elseif kind == "PULL" then
        -- Padding, of which its receiver says how much there may be (SPEC#push).
        fits = true
    else
        fits = payload_len == 0
    end
    if not fits then return "datagram shorter than its header says" end
end

-- Bytes by UDP's own length: an ICMP error quotes fewer.
local function whole_len(tvb)
    local lengths = { udp_length() }
    local last = lengths[#lengths]
    return math.max(tvb:reported_len(), last and last.value - UDP_LEN or 0)
end

-- The lengths of the datagrams in a packet of `whole` bytes: one, or several before the card that
-- cuts them. A packet that the capture cut off has those with a header there.
local function datagrams(tvb, whole)
    local lens, at, captured = {}, 0, tvb:captured_len()
    while at < whole and at + HEADER_LEN <= captured do
        local header = parse(tvb(at, HEADER_LEN))
        local kind, len = KIND[header.kind], HEADER_LEN
        local element_len = ELEMENT_LEN[header.element_type] or 0
        if kind == "CONTRIB" or kind == "ANSWER" or is_of_keys(header.row) then
            len = len + header.count * element_len
        end
        if kind == "CONTRIB" and outcome_name(header) == "LAST" and element_len > 0 then
            -- Padding ends before the next header, with job and cookie as here.
            local own = tvb(at + 2, 6):bytes()
            while at + len < whole
                and (at + len + 8 > captured or tvb(at + len + 2, 6):bytes() ~= own) do
                len = len + element_len
            end
        end
        if kind == "PULL" or fault(header, len - HEADER_LEN) then return { whole } end
        lens[#lens + 1] = len
        at = at + len
    end
    if at == whole or (at < whole and captured < whole) then return lens end
    return { whole }
end

local function flag_names(flags)
    local names = {}
    for _, value in ipairs({ 0x80, 0x40, 0x20, 0x10, 0x08 }) do
        if flags % (value * 2) >= value then names[#names + 1] = FLAGS[value] end
    end
    return names
end

-- "0x0000…f" of eight octets without the leading zeros.
local function short_hex(range)
    local digits = tostring(range:bytes()):lower():gsub("^0+", "")
    return "0x" .. (digits == "" and "0" or digits)
end

local function has_any_bit(range)
    return tostring(range:bytes()):find("[^0]") ~= nil
end

local function add_members(tree, range)
    local item = tree:add(fields.members, range)
    local count = 0
    for octet_index = 0, 7 do
        local octet = range(7 - octet_index, 1)
        for bit_index = 0, 7 do
            if octet:bitfield(7 - bit_index, 1) == 1 then
                item:add(fields["members.rank"], octet, octet_index * 8 + bit_index)
                    :set_generated()
                count = count + 1
            end
        end
    end
    item:add(fields["members.count"], range, count):set_generated()
end

local function add_crc(tree, tvb, len, header)
    local item = tree:add(fields.crc, tvb(20, 4))
    local status
    if header.crc == 0 then
        status = 3
    elseif tvb:captured_len() < len then
        status = 2
    elseif crc32c(tvb:raw(0, tvb:captured_len())) == header.crc then
        status = 1
    else
        status = 0
        item:add_proto_expert_info(experts.crc)
    end
    item:add(fields["crc.status"], tvb(20, 4), status):set_generated()
    return status
end

local function add_plain(tree, name, range, header)
    if name == "flags" then
        local item = tree:add(fields.flags, range, header.flags)
        for _, flag in ipairs(flag_names(0xf8)) do
            item:add(fields["flags." .. flag], range)
        end
        return
    end
    local item = tree:add(fields[name], range)
    if name == "group" then
        local row = item:add(fields["group.row"], range(0, 2))
        local meaning = ROWS[range(0, 2):uint()]
        if meaning then row:append_text(" (" .. meaning .. ")") end
        item:add(fields["group.generation"], range(2, 2))
    end
end

local function add_header(tree, tvb, len, header)
    local status
    for _, row in ipairs(HEADER) do
        local name = row[1]
        local range = tvb(row[2], math.max(1, row[4] / 8))
        if name == "members" then
            add_members(tree, range)
        elseif name == "crc" then
            status = add_crc(tree, tvb, len, header)
        else
            add_plain(tree, name, range, header)
        end
    end
    return status
end

local function add_elements(tree, tvb, header)
    local len = ELEMENT_LEN[header.element_type]
    local captured = tvb:captured_len() - HEADER_LEN
    if len == 0 or captured <= 0 then return end
    local item = tree:add(fields.payload, tvb(HEADER_LEN, captured))
    local shown = math.min(ELEMENTS_SHOWN, header.count, math.floor(captured / len))
    for index = 0, shown - 1 do
        local range = tvb(HEADER_LEN + index * len, len)
        local name = ELEMENT_TYPE[header.element_type]
        if name == "bf16" then
            -- bfloat16 is the upper half of a binary32.
            local whole = ByteArray.new(tostring(range:bytes()) .. "0000"):tvb("bf16")
            item:add(fields["element.bf16"], range, whole(0, 4):float())
        else
            item:add(fields["element." .. name], range)
        end
    end
end

local CUT_OFF = "(cut off by the capture)"
local HELLO_FAULT = "HELLO body without meaning or shorter than it says"

-- Adds a handshake body; returns its line, or nil and the fault.
local function add_hello(tree, tvb, len)
    local captured = tvb:captured_len() - HEADER_LEN
    if captured < BODY_LEN then return " " .. CUT_OFF end
    local body = tvb(HEADER_LEN, captured)
    local hello = tree:add(weft, body, "Handshake")
    local known = true
    local value = {}
    for _, row in ipairs(HELLO) do
        local name, range = row[1], body(row[2], row[3])
        hello:add(fields["hello." .. name], range)
        if row[3] <= 4 then value[name] = range:uint() end
        local values = HELLO_VALUES[name]
        if values and not values[value[name]] then known = false end
    end
    -- As an unsigned byte.
    local exponent = value.exponent
    if exponent > EXPONENT_MAX and exponent < 256 - EXPONENT_MAX then known = false end
    local bitmap_len = math.ceil(value.step_bits / 8)
    if not known or value.step_bits > STEP_BITS_MAX
        or BODY_LEN + bitmap_len > len - HEADER_LEN then
        return nil, HELLO_FAULT
    end
    local there = math.min(bitmap_len, captured - BODY_LEN)
    if there > 0 then hello:add(fields["hello.bitmap"], body(BODY_LEN, there)) end
    local padding_at = BODY_LEN + bitmap_len
    if captured > padding_at then
        hello:add(fields["hello.padding"], body(padding_at, captured - padding_at))
    end
    if PHASE[value.phase] == "REFUSED" then
        hello:add_proto_expert_info(experts.refused, "Refused: " .. REASON[value.reason])
    end
    local reason = REASON[value.reason] ~= "NONE" and " reason=" .. REASON[value.reason] or ""
    hello:append_text(": " .. PHASE[value.phase])
    return string.format(
        " phase=%s%s life=%s session=%s epoch=%d window=%d low_step=%d step_bits=%d",
        PHASE[value.phase], reason, tostring(body(8, 8):bytes()):lower(),
        tostring(body(24, 8):bytes()):lower(), value.epoch, value.window, value.low_step,
        value.step_bits)
end

-- Frames about keys whose entries are keys and a fixed number of bytes: bytes of an entry, by kind,
-- DIRECT and outcome.
local KEYS_ENTRY_LEN = {
    ["PULL.0.NONE"] = 8, ["STATE.0.WAIT"] = 8, ["STATE.0.STALE"] = 8,
    ["STATE.0.HAVE"] = 20, ["STATE.0.VOID"] = 20, ["STATE.0.COMMITTED"] = 20,
    ["STATE.0.DROPPED"] = 20, ["ACK.1.NONE"] = 20,
}

-- Adds the head of a body about keys, and the keys where they are easy to find.
local function add_keys(tree, tvb, header)
    local captured = tvb:captured_len() - HEADER_LEN
    if captured < KEYS_LEN then return end
    local body = tvb(HEADER_LEN, captured)
    local keys = tree:add(weft, body, "Keys")
    for _, row in ipairs(KEYS) do
        keys:add(fields["keys." .. row[1]], body(row[2], row[3]))
    end
    local direct = math.floor(header.flags / 64) % 2
    local name = string.format(
        "%s.%d.%s", KIND[header.kind], direct, OUTCOME[header.outcome] or "NONE")
    local len = KEYS_ENTRY_LEN[name]
    local value_len = body(0, 2):uint() * 4
    local at = KEYS_LEN
    for _ = 1, body(2, 2):uint() do
        local entry_len = len
        if captured < at + 8 then return end
        if not entry_len and name ~= "ANSWER.1.NONE" and captured >= at + 12 then
            local parts = body(at + 8, 1):uint() % 8
            local values = parts % 2 + math.floor(parts / 2) % 2
            if KIND[header.kind] == "ANSWER" or KIND[header.kind] == "ACK" then
                values = parts == 4 and 1 or 0
            end
            entry_len = 12 + values * value_len
        elseif not entry_len and name == "ANSWER.1.NONE" and captured >= at + 20 then
            if at == KEYS_LEN then at = at + body(4, 2):uint() * 12 end
            if captured < at + 20 then return end
            entry_len = 20 + body(at + 16, 2):uint() * 12 + value_len
        end
        if not entry_len then return end
        keys:add(fields["keys.key"], body(at, 8))
        at = at + entry_len
    end
end

-- Adds the label of the job's frames, if they carry one.
local function add_label(tree)
    for _, field in ipairs(dscp_fields) do
        local dscp = field()
        if dscp and dscp.value > 0 then
            tree:add(fields["label"], dscp.value):set_generated()
        end
    end
end

-- One line, as the Rust crate displays a header.
local function line(tvb, header)
    local outcome = header.outcome ~= 0 and " " .. outcome_name(header) or ""
    local text = string.format(
        "%s%s job=%d group=%d.%d chunk=%d members=%s",
        KIND[header.kind], outcome, tvb(2, 2):uint(), tvb(8, 2):uint(), tvb(10, 2):uint(),
        tvb(12, 4):uint(), short_hex(tvb(24, 8)))
    if header.count > 0 then
        text = string.format(
            "%s count=%d %s %s", text, header.count, ELEMENT_TYPE[header.element_type],
            OPERATION[header.operation])
    end
    local names = flag_names(header.flags)
    if #names > 0 then text = text .. " [" .. table.concat(names, ",") .. "]" end
    return text
end

local function add_notes(tree, header)
    for _, name in ipairs(flag_names(header.flags)) do
        local note = experts[name:lower()]
        if note then tree:add_proto_expert_info(note) end
    end
    if OUTCOME[header.outcome] == "STALE" then tree:add_proto_expert_info(experts.stale) end
end

-- Adds a datagram of `len` bytes; returns its line.
local function add_datagram(tvb, len, pinfo, root)
    local tree = root:add(weft, tvb())
    local function malformed(what)
        tree:add_proto_expert_info(experts.malformed, what)
        return "(" .. what .. ")"
    end
    if len < HEADER_LEN then
        return malformed("datagram shorter than its header says")
    elseif tvb:captured_len() < HEADER_LEN then
        return CUT_OFF
    end
    local header = parse(tvb)
    local status = add_header(tree, tvb, len, header)
    add_label(tree)
    local what = fault(header, len - HEADER_LEN)
    if what then return malformed(what) end
    local text = line(tvb, header)
    if KIND[header.kind] == "HELLO" then
        local hello, hello_fault = add_hello(tree, tvb, len)
        if not hello then return malformed(hello_fault) end
        text = text .. hello
    else
        add_elements(tree, tvb, header)
        if is_of_keys(header.row) then add_keys(tree, tvb, header) end
    end
    add_notes(tree, header)
    if status == 0 then
        text = text .. " (bad CRC)"
    else
        -- Conversations go before ports: no other protocol gets its later frames.
        pinfo.conversation = weft
    end
    tree:append_text(": " .. text)
    return text
end

function weft.dissector(tvb, pinfo, root)
    pinfo.cols.protocol = "WEFT"
    local at, lines = 0, {}
    for _, len in ipairs(datagrams(tvb, whole_len(tvb))) do
        local part = tvb(at, math.min(len, tvb:captured_len() - at)):tvb()
        lines[#lines + 1] = add_datagram(part, len, pinfo, root)
        at = at + len
    end
    local count = #lines > 1 and #lines .. " datagrams: " or ""
    pinfo.cols.info = count .. table.concat(lines, "; ")
    return tvb:captured_len()
end

-- On other ports: a valid header whose length fits, with a right CRC, or none and something that
-- chance is unlikely to give (a member, and a sum or contribution with elements).
local function looks_like_weft(tvb)
    local whole = whole_len(tvb)
    if tvb:captured_len() < HEADER_LEN or tvb:captured_len() < whole then
        return false
    end
    local header, len = parse(tvb), datagrams(tvb, whole)[1]
    if fault(header, len - HEADER_LEN) then return false end
    if header.crc ~= 0 then
        return crc32c(tvb:raw(0, len)) == header.crc
    end
    return header.count > 0 and header.element_type > 0 and header.operation > 0
        and has_any_bit(tvb(24, 8))
end

local function heuristic(tvb, pinfo, root)
    if not looks_like_weft(tvb) then return false end
    weft.dissector(tvb, pinfo, root)
    return true
end

local udp_port = DissectorTable.get("udp.port")
local registered_port

local function register_port()
    if registered_port == weft.prefs.port then return end
    if registered_port then udp_port:remove(registered_port, weft) end
    registered_port = weft.prefs.port
    if registered_port ~= 0 then udp_port:add(registered_port, weft) end
end

weft.prefs_changed = register_port
register_port()
weft:register_heuristic("udp", heuristic)
