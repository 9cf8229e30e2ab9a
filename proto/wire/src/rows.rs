//! Rows that mean the same in every job (SPEC#channels, SPEC#push).

/// First of the 64 rows of direct updates without a controller.
pub const ROW_DIRECT: u16 = 0x8000;
/// First row of tables of keys (SPEC#keys): the row of table `t` is this plus `t`.
pub const ROW_KEYS: u16 = 0x9000;
/// Tables that one job can have.
pub const TABLES_MAX: u16 = 0x1000;
/// The decision log, for replicas.
pub const ROW_LOG: u16 = 0xfffc;
/// The model.
pub const ROW_MODEL: u16 = 0xfffd;
/// Channel of a box.
pub const ROW_BOX_CHANNEL: u16 = 0xfffe;
/// Channel of a worker.
pub const ROW_WORKER_CHANNEL: u16 = 0xffff;

/// True for the rows of tables of keys: their datagrams have a body, whatever their kind.
#[must_use]
pub const fn is_of_keys(row: u16) -> bool {
    row >= ROW_KEYS && row < ROW_KEYS + TABLES_MAX
}
