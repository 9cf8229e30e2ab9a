// The target of a proof: memory is whatever a frame finds there, so that one pass of the pipeline
// says what any does. In the place of ../../v1model.p4, for p4testgen; prove.py says how.
//
// Memory stands in front of the frame: what the cells that the frame reads hold, those of its own
// bank and those of the other one of its slot. A pass reads no third one, and writes its own.

#include <core.p4>
#include <v1model.p4>

// p4testgen's own.
extern void testgen_assume(in bool assumption);
extern void testgen_assert(in bool assumption);

header memory_t {
    bit<32> own_tag_epoch;
    bit<32> own_tag_step;
    bit<64> own_bank_members;
    bit<8>  own_bank_state;
    bit<8>  own_bank_exponent;
    bit<8>  own_bank_flags;
    bit<8>  own_bank_credit;
    bit<32> own_lane_00;
    bit<32> twin_tag_epoch;
    bit<32> twin_tag_step;
    bit<8>  twin_bank_state;
    // Of the row, and of the switch.
    bit<64> own_gone;
    bit<32> own_gone_epoch;
    bit<64> own_life;
    bit<8>  is_op;
    bit<8>  has_vector;
    // What another frame left in a vector that this one does not have.
    bit<32> stale;
}

#define TARGET_FIELDS \
    memory_t memory; \
    bit<8>  wrote_bank; \
    bit<32> wrote_tag_epoch; bit<32> wrote_tag_step; bit<32> wrote_bank_members; \
    bit<32> wrote_bank_state; bit<32> wrote_bank_exponent; bit<32> wrote_bank_flags; \
    bit<32> wrote_bank_credit; bit<32> wrote_lane_00; \
    bit<32> wrote_gone; bit<32> wrote_gone_epoch; bit<32> wrote_life;
#define NOT_WRITTEN 0xffffffff

#define REGISTER(type, size, name) typedef type cell_##name;
// The two banks of a slot lie side by side: a distance of one is the twin.
#define IS_TWIN(cell) ((cell - meta.index) & 1)
#define READ(name, to, index) to = READ_##name(name, index);
#define OWN(name, index) meta.memory.own_##name
#define EITHER(name, index) \
    (meta.memory.own_##name & ((cell_##name)IS_TWIN(index) - 1)) \
    | (meta.memory.twin_##name & (0 - (cell_##name)IS_TWIN(index)))
#define READ_tag_epoch EITHER
#define READ_tag_step EITHER
#define READ_bank_state EITHER
#define READ_bank_members OWN
#define READ_bank_exponent OWN
#define READ_bank_flags OWN
#define READ_bank_credit OWN
#define READ_lane_00 OWN
#define READ_gone OWN
#define READ_gone_epoch OWN
#define READ_life OWN
#define WRITE(name, index, value) \
    meta.memory.own_##name = value; \
    meta.wrote_##name = index;

#define COUNTER(size, name)
#define COUNT(name, index)
#define METER(size, name)
#define CHARGE(name, index, color) color = 0;
#define RED 2

// A right sum cannot be guessed; that a wrong one is refused the vectors show.
#define CHECKSUM(to, words) to = 0;

#define STANDARD inout standard_metadata_t standard
#define FRAME_BYTES standard.packet_length
#define CAME_IN standard.ingress_port
#define GOES_OUT standard.egress_port
#define COPY_ID standard.egress_rid
#define DROP mark_to_drop(standard);
#define TO_PORT(number) standard.egress_spec = number;
#define TO_GROUP(number) standard.mcast_grp = number;
#define CUT_TO(bytes)

// proof.p4 has it.
#define PIPELINE(from, ingress, egress, to)
