// Frames of others. A frame goes to the port of its address, or to all but the one that it came
// from; what the switch does not judge itself goes to the agent.

control Bridge(inout headers_t hdr, inout meta_t meta, STANDARD) {
    action to_port(bit<32> port) {
        meta.color = port;
        TO_PORT(port)
    }
    action flood() {
        meta.class = CLASS_FLOOD;
    }
    table bridge {
        key = { hdr.ethernet.dst : exact @name("mac"); }
        actions = { to_port; flood; }
        default_action = flood();
        size = 1024;
    }

    // The ports as a ring; `session` is the next one's.
    action flood_to(bit<16> next, bit<16> session) {
        meta.id = next;
        COPY_SESSION = session;
    }
    action nobody_else() {
        meta.class = CLASS_DROP;
    }
    table floods {
        key = { meta.id : exact @name("port"); }
        actions = { flood_to; nobody_else; }
        default_action = nobody_else();
        size = 64;
    }

    apply {
        if (meta.class == CLASS_CPU) {
            TO_PORT(CPU_PORT)
        } else if (meta.class == CLASS_BRIDGE) {
            meta.color = SINK_PORT;
            bridge.apply();
            meta.id = (bit<16>)CAME_IN;
            if (meta.color == CAME_IN) {
                TO_PORT(SINK_PORT)
            }
        }
        if (meta.class == CLASS_FLOOD) {
            floods.apply();
            if (meta.class == CLASS_DROP || meta.id == (bit<16>)CAME_IN) {
                COPY_SESSION = NO_SESSION;
            } else {
                if (PASSES < PASSES_MAX) {
                    PASSES = PASSES + 1;
                    recirculate();
                }
            }
        }
    }
}
