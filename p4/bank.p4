// The memory of the slots: for each bank its tag, whose contributions it holds, and its standing.
// The elements are in accumulate.p4. A bank counts as EMPTY unless its tag names the lease that
// asks, so an installation begins with an empty arena and nothing of an earlier one returns.

REGISTER(bit<32>, BANKS, tag_epoch)
REGISTER(bit<32>, BANKS, tag_step)
REGISTER(bit<64>, BANKS, bank_members)
REGISTER(bit<8>, BANKS, bank_state)
REGISTER(bit<8>, BANKS, bank_exponent)
REGISTER(bit<8>, BANKS, bank_flags)
REGISTER(bit<8>, BANKS, bank_credit)

// Both tags of a slot, and all of the bank that is asked for.
#define LOAD_SLOT \
    READ(tag_epoch, meta.bank_epoch, meta.index) \
    READ(tag_epoch, meta.other_epoch, meta.other) \
    READ(tag_step, meta.bank_step, meta.index) \
    READ(tag_step, meta.other_step, meta.other) \
    READ(bank_state, meta.bank_state, meta.index) \
    READ(bank_state, meta.other_state, meta.other) \
    READ(bank_members, meta.bank_members, meta.index) \
    READ(bank_exponent, meta.bank_exponent, meta.index) \
    READ(bank_flags, meta.bank_flags, meta.index) \
    READ(bank_credit, meta.bank_credit, meta.index)

#define STORE_BANK \
    WRITE(tag_epoch, meta.index, meta.lease_epoch) \
    WRITE(tag_step, meta.index, meta.step) \
    WRITE(bank_state, meta.index, meta.bank_state) \
    WRITE(bank_members, meta.index, meta.bank_members) \
    WRITE(bank_exponent, meta.index, meta.bank_exponent) \
    WRITE(bank_flags, meta.index, meta.bank_flags) \
    WRITE(bank_credit, meta.index, meta.bank_credit)

// Members that credits took out of a whole row, of the installation that `gone_epoch` names.
REGISTER(bit<64>, ROWS_MAX, gone)
REGISTER(bit<32>, ROWS_MAX, gone_epoch)

// One that the agent writes, to know the switch's life by.
REGISTER(bit<64>, 1, life)
