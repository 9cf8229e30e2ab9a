// Why a frame was refused, and what a slot went through: indices of the counters. The numbers are
// those of the Rust enums (`DropReason`, `slot::counter::Transition`), which a test holds; for
// whole leases those of `gather`'s transitions that a switch has, from 14 on, in its order.

#define NONE 255

#define REASON_LENGTH 0
#define REASON_FRAGMENT 2
#define REASON_IP_HEADER 3
#define REASON_IP_CHECKSUM 4
#define REASON_VERSION 7
#define REASON_KIND 8
#define REASON_UNKNOWN_JOB 9
#define REASON_UNKNOWN_GROUP 10
#define REASON_BAD_MEMBERS 11
#define REASON_STALE_EPOCH 12
#define REASON_BAD_COOKIE 13
#define REASON_STALE_GROUP 14
#define REASON_WRONG_SOURCE 15
#define REASON_OVER_QUOTA 17
#define REASON_STRANGERS_QUOTA 18
#define REASON_CHUNK_OUT_OF_RANGE 19
#define REASON_ELEMENT_COUNT 20
#define REASON_ELEMENT_TYPE 21
#define REASON_OPERATION 22
#define REASON_EXPONENT 23
#define REASON_INTEGRITY 24
#define REASON_STALE_STEP 25
#define REASON_DUPLICATE 26
#define REASONS 31

#define TRANSITION_CLAIM 0
#define TRANSITION_ADD 1
#define TRANSITION_COMPLETE_ROOT 2
#define TRANSITION_REPEAT_COLLECTING 6
#define TRANSITION_REPEAT_ANSWERED 9
#define TRANSITION_REFUSE_FOREIGN 10
#define TRANSITION_STATUS_UNCLAIMED 11

#define WHOLE_NARROW 14
#define WHOLE_STORE 15
#define WHOLE_ADD 16
#define WHOLE_SEND_ON_CONTRIBUTION 17
#define WHOLE_REPEAT_COLLECTING 18
#define WHOLE_REPEAT_SENT 19
#define WHOLE_REFUSE_STALE 20
#define WHOLE_CREDIT_EMPTY 21
#define WHOLE_CREDIT_COLLECTING 22
#define WHOLE_SEND_ON_CREDIT 23
#define WHOLE_SEND_AGAIN 24
#define WHOLE_CREDIT_STALE 25
#define TRANSITIONS 32

// The first check that fails is the reason, and none after it counts, or reads what the failed one
// would have found missing.
#define REFUSE_IF(condition, why) \
    if (meta.reason == NONE) { \
        if (condition) { \
            meta.reason = why; \
        } \
    }
