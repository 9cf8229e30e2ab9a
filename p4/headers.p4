// The frames: Ethernet, ARP, IPv4, UDP, the 32 bytes of proto/SPEC.md, a vector, and what the agent
// says to its switch. Fields are whole bytes; parts of a byte are told apart by masks.

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_ARP 0x0806
#define ETHERTYPE_OP 0x88b5
#define PROTOCOL_UDP 17

#define VERSION_MASK 0xf0
#define VERSION_1 0x10
#define KIND_MASK 0x0f
#define KIND_CONTRIB 1
#define KIND_ANSWER 2
#define KIND_STATE 4
#define KIND_PULL 5
#define KIND_STATUS 7
#define KIND_LAST 7

#define FLAG_RETRANSMIT 0x80
#define FLAG_CONGESTION 0x08
// CLAMPED and CONGESTION: what a sum takes over from its contributions.
#define FLAGS_INHERITED 0x18

#define OUTCOME_HAVE 5
#define OUTCOME_STALE 6

#define TYPE_MASK 0xf0
#define TYPE_NONE 0x00
#define TYPE_BF16 0x30
#define TYPE_LAST 0x30
#define OPERATION_MASK 0x0f
#define OPERATION_MAX 2
#define OPERATION_LAST 2

// -126 to 126, as bytes: 127, -128 and -127 have no meaning.
#define EXPONENT_HIGH 126
#define EXPONENT_LOW 130

#define EPOCH_MASK 0xff000000
#define ECN_MASK 0x03
#define ECN_CE 0x03
#define ECN_ECT0 0x02
#define FRAGMENT_MASK 0x3fff
#define DO_NOT_FRAGMENT 0x4000
#define HOP_LIMIT 64

#define OP_SET_LIFE 1
#define OP_ASK_LIFE 2
#define OP_SEED 3
#define OP_ECHO 0x80

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

header arp_t {
    bit<64> kind;
    bit<48> sender_mac;
    bit<32> sender_ip;
    bit<48> target_mac;
    bit<32> target_ip;
}

header ipv4_t {
    bit<8>  version_ihl;
    bit<8>  tos;
    bit<16> len;
    bit<16> id;
    bit<16> fragment;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header udp_t {
    bit<16> src;
    bit<16> dst;
    bit<16> len;
    bit<16> checksum;
}

header weft_t {
    bit<8>  version_kind;
    bit<8>  flags_outcome;
    bit<16> job;
    bit<32> cookie;
    bit<16> row;
    bit<16> generation;
    bit<32> chunk;
    bit<8>  type_op;
    bit<8>  exponent;
    bit<16> count;
    bit<32> crc;
    bit<64> members;
}

header op_t {
    bit<8>  op;
    bit<8>  state;
    bit<8>  exponent;
    bit<8>  flags;
    bit<16> count;
    bit<16> pad;
    bit<32> nonce;
    bit<32> index;
    bit<32> lease_epoch;
    bit<32> step;
    bit<64> members;
    bit<64> life;
}

#define FIELD(n) bit<32> e##n;
header vector_t {
    LANES(FIELD)
}

struct headers_t {
    ethernet_t ethernet;
    arp_t      arp;
    ipv4_t     ipv4;
    udp_t      udp;
    weft_t     weft;
    op_t       op;
    vector_t   vec;
}

// What becomes of a frame.
#define CLASS_DROP 0
#define CLASS_BRIDGE 1
#define CLASS_CPU 2
#define CLASS_OP 3
#define CLASS_DATA 4

// Whose a row is. PUSH: of a push job, without an open group.
#define LEASE_NONE 0
#define LEASE_WINDOWED 1
#define LEASE_WHOLE 2
#define LEASE_PUSH 3

#define STATE_EMPTY 0
#define STATE_COLLECTING 1
#define STATE_SENT 2
#define STATE_ANSWERED 3
#define STATE_VIRTUAL 4

#define SEEN_CLAIMABLE 1
#define SEEN_NEW 2
#define SEEN_REPEAT 3
#define SEEN_FOREIGN 4

// What goes to whom.
#define SEND_NOTHING 0
#define SEND_STATE 1
#define SEND_ANSWER 2
#define SEND_SUM 3

struct meta_t {
    bit<8>  class;
    bit<8>  reason;
    bit<8>  kind;
    bit<8>  retransmit;
    bit<64> fault_members;
    bit<32> fault_chunk;
    bit<32> ip;
    bit<16> listens;
    bit<16> checksum;
    bit<32> payload_bytes;
    bit<32> color;

    // The row.
    bit<8>  lease;
    bit<16> scope;
    bit<32> lease_epoch;
    bit<16> generation;
    bit<64> mask;
    bit<32> base;
    bit<32> window_mask;
    bit<32> window;
    bit<32> chunks;
    bit<8>  type_op;
    bit<8>  exponent;
    bit<8>  exponent_fixed;
    bit<16> row_index;
    bit<8>  replicate;
    bit<64> gone;
    bit<32> gone_epoch;

    // Who speaks.
    bit<8>  rank;
    bit<32> peer_cookie;
    bit<32> peer_ip;
    bit<16> peer_port;
    bit<8>  is_at_home;

    // The bank, as it was found, and the other one of its slot.
    bit<8>  has_bank;
    bit<32> index;
    bit<32> other;
    bit<32> step;
    bit<32> bank_epoch;
    bit<32> bank_step;
    bit<8>  bank_state;
    bit<64> bank_members;
    bit<8>  bank_exponent;
    bit<8>  bank_flags;
    bit<8>  bank_credit;
    bit<32> other_epoch;
    bit<32> other_step;
    bit<8>  other_state;
    bit<8>  seen;
    bit<8>  flags;

    // What the lanes do: new = (old & keep) + (element & take), or the greater of both.
    bit<8>  has_lanes;
    bit<32> keep;
    bit<32> take;
    bit<8>  is_max;
    bit<8>  writes_bank;

    // For the record; NONE where nothing is.
    bit<8>  happened;
    bit<8>  happened_too;
    bit<8>  enters;

    // What goes out.
    bit<8>  to_sender;
    bit<8>  to_members;
    bit<8>  to_server;
    bit<8>  to_replica;
    bit<8>  echoes_cookie;
    bit<8>  outcome;
    bit<64> state_members;
    bit<8>  sum_flags;

    // The copy that leaves.
    bit<16> id;
    bit<64> copy_bit;
    bit<32> copy_cookie;
    bit<8>  copy_flags;
    bit<8>  sends;

    TARGET_FIELDS
}
