// Frames of others. A frame goes to the port of its address, or to all but the one that it came
// from; what the switch does not judge itself goes to the agent.

control Bridge(inout headers_t hdr, inout meta_t meta, STANDARD) {
    action to_port(bit<9> port) {
        TO_PORT(port)
    }
    action flood() {
        TO_GROUP(1)
    }
    table bridge {
        key = { hdr.ethernet.dst : exact @name("mac"); }
        actions = { to_port; flood; }
        default_action = flood();
        size = 1024;
    }

    action charge_strangers() {
        CHARGE(cpu_meter, 0, meta.color)
    }

    apply {
        if (meta.class == CLASS_BRIDGE) {
            bridge.apply();
        } else {
            charge_strangers();
            if (meta.color == RED) {
                meta.reason = REASON_STRANGERS_QUOTA;
                DROP
            } else {
                TO_PORT(CPU_PORT)
            }
        }
    }
}
