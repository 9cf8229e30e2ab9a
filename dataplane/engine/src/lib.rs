//! The sans-IO state machines of Weft.
