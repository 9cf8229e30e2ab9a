//! Rows that mean the same in every job (SPEC#channels, SPEC#push).

/// First of the 64 rows of direct updates without a controller.
pub const ROW_DIRECT: u16 = 0x8000;
/// The decision log, for replicas.
pub const ROW_LOG: u16 = 0xfffc;
/// The model.
pub const ROW_MODEL: u16 = 0xfffd;
/// Channel of a box.
pub const ROW_BOX_CHANNEL: u16 = 0xfffe;
/// Channel of a worker.
pub const ROW_WORKER_CHANNEL: u16 = 0xffff;
