//! Nanoseconds per packet of 256 elements: every operation, every instruction set of this
//! machine, with the slot in L1 and with slots spread over 512 KiB (L2).
//!
//! `cargo bench -p weft-kernel -- add_i32` runs the operations whose name contains `add_i32`.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use weft_kernel::{Isa, Kernels, crc32c, crc32c_append};

const ELEMENTS: usize = 256;
const PAYLOAD_BYTES: usize = ELEMENTS * 4;
/// Where the payload starts in an IPv4 frame: not aligned to anything.
const PAYLOAD_OFFSET: usize = 74;
/// Slot counts, powers of two: 4 KiB fits L1, 512 KiB fits L2 and not L1.
const WORKING_SETS: [(&str, usize); 2] = [("L1", 4), ("512KiB", 512)];
const LIMIT: i32 = 1 << 20;

/// Slots aligned as the engine aligns them.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Slot<T>([T; ELEMENTS]);

struct Memory {
    frame: Vec<u8>,
    i32_slots: Vec<Slot<i32>>,
    f32_slots: Vec<Slot<f32>>,
    rows: Vec<f32>,
}

impl Memory {
    fn new(slot_count: usize) -> Self {
        let mut frame = vec![0; PAYLOAD_OFFSET + PAYLOAD_BYTES];
        for (word, value) in frame[PAYLOAD_OFFSET..].chunks_exact_mut(4).zip(0u16..) {
            word.copy_from_slice(&(f32::from(value) * 0.25).to_be_bytes());
        }
        Self {
            frame,
            i32_slots: vec![Slot([1; ELEMENTS]); slot_count],
            f32_slots: vec![Slot([1.0; ELEMENTS]); slot_count],
            rows: (0..4u16 * 256).map(f32::from).collect(),
        }
    }
}

type Operation = fn(&Kernels, &mut Memory, usize);

/// Runs one operation on the payload and the slot with the given index.
const OPERATIONS: [(&str, Operation); 23] = [
    ("store_i32", |k, m, i| k.store_i32(&mut m.i32_slots[i].0, payload(&m.frame))),
    ("add_i32", |k, m, i| k.add_i32(&mut m.i32_slots[i].0, payload(&m.frame))),
    ("add_i32_emit", |k, m, i| k.add_i32_emit(&mut m.i32_slots[i].0, payload_mut(&mut m.frame))),
    ("store_i32_clamped", |k, m, i| {
        black_box(k.store_i32_clamped(&mut m.i32_slots[i].0, payload(&m.frame), LIMIT));
    }),
    ("add_i32_clamped", |k, m, i| {
        black_box(k.add_i32_clamped(&mut m.i32_slots[i].0, payload(&m.frame), LIMIT));
    }),
    ("add_i32_clamped_emit", |k, m, i| {
        let payload = payload_mut(&mut m.frame);
        black_box(k.add_i32_clamped_emit(&mut m.i32_slots[i].0, payload, LIMIT));
    }),
    ("max_i32", |k, m, i| k.max_i32(&mut m.i32_slots[i].0, payload(&m.frame))),
    ("max_i32_emit", |k, m, i| k.max_i32_emit(&mut m.i32_slots[i].0, payload_mut(&mut m.frame))),
    ("emit_i32", |k, m, i| k.emit_i32(&m.i32_slots[i].0, payload_mut(&mut m.frame))),
    ("store_f32", |k, m, i| k.store_f32(&mut m.f32_slots[i].0, payload(&m.frame))),
    ("add_f32", |k, m, i| k.add_f32(&mut m.f32_slots[i].0, payload(&m.frame))),
    ("add_f32_emit", |k, m, i| k.add_f32_emit(&mut m.f32_slots[i].0, payload_mut(&mut m.frame))),
    ("sum_4_rows_f32_emit", |k, m, i| {
        let payload = payload_mut(&mut m.frame);
        k.sum_rows_f32_emit(&m.rows, ELEMENTS, &mut m.f32_slots[i].0, payload);
    }),
    ("store_bf16", |k, m, i| k.store_bf16(&mut m.f32_slots[i].0, halves(&m.frame))),
    ("add_bf16", |k, m, i| k.add_bf16(&mut m.f32_slots[i].0, halves(&m.frame))),
    ("add_bf16_emit", |k, m, i| k.add_bf16_emit(&mut m.f32_slots[i].0, halves_mut(&mut m.frame))),
    ("emit_bf16", |k, m, i| k.emit_bf16(&m.f32_slots[i].0, halves_mut(&mut m.frame))),
    ("quantise_f32", |k, m, i| {
        let payload = payload_mut(&mut m.frame);
        black_box(k.quantise_f32(&m.f32_slots[i].0, 1024.0, LIMIT, payload));
    }),
    ("dequantise_i32", |k, m, i| {
        k.dequantise_i32(payload(&m.frame), 0.5, &mut m.f32_slots[i].0);
    }),
    ("max_abs_f32", |k, m, i| {
        black_box(k.max_abs_f32(&m.f32_slots[i].0));
    }),
    ("momentum_step_i32", |k, m, i| {
        let payload = payload(&m.frame);
        let [h, w] = m.f32_slots.get_disjoint_mut([i, i ^ 1]).expect("two slots");
        black_box(k.momentum_step_i32(payload, 1e-6, 0.9, &mut h.0, &mut w.0));
    }),
    ("momentum_step_f32", |k, m, i| {
        let payload = payload(&m.frame);
        let [h, w] = m.f32_slots.get_disjoint_mut([i, i ^ 1]).expect("two slots");
        black_box(k.momentum_step_f32(payload, 1e-6, 0.9, &mut h.0, &mut w.0));
    }),
    ("sum_squares_i32", |k, m, _| {
        black_box(k.sum_squares_i32(payload(&m.frame), 1e-6));
    }),
];

fn payload(frame: &[u8]) -> &[u8] {
    &frame[PAYLOAD_OFFSET..]
}

fn payload_mut(frame: &mut [u8]) -> &mut [u8] {
    &mut frame[PAYLOAD_OFFSET..]
}

fn halves(frame: &[u8]) -> &[u8] {
    &frame[PAYLOAD_OFFSET..][..PAYLOAD_BYTES / 2]
}

fn halves_mut(frame: &mut [u8]) -> &mut [u8] {
    &mut frame[PAYLOAD_OFFSET..][..PAYLOAD_BYTES / 2]
}

fn arithmetic(criterion: &mut Criterion) {
    for (name, operation) in OPERATIONS {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(ELEMENTS as u64));
        for (place, slot_count) in WORKING_SETS {
            let mut memory = Memory::new(slot_count);
            for kernels in Isa::ALL.into_iter().filter_map(Kernels::for_isa) {
                let mut index = 0usize;
                group.bench_function(BenchmarkId::new(kernels.isa().to_string(), place), |b| {
                    b.iter(|| {
                        // Visits every slot, in an order that no prefetcher follows.
                        index = (index * 5 + 1) & (slot_count - 1);
                        operation(black_box(kernels), black_box(&mut memory), index);
                    });
                });
            }
        }
        group.finish();
    }
}

fn crc(criterion: &mut Criterion) {
    let frame: Vec<u8> = (0..=255u8).cycle().take(42 + 1056).collect();
    let mut group = criterion.benchmark_group("crc32c");
    group.throughput(Throughput::Bytes(1056));
    group.bench_function("1056B", |b| b.iter(|| crc32c(black_box(&frame[42..]))));
    group.bench_function("32B+1024B", |b| {
        b.iter(|| crc32c_append(crc32c(black_box(&frame[42..74])), black_box(&frame[74..])));
    });
    group.finish();
}

type Emit = fn(&Kernels, &[f32], &mut [u8]);
type Store = fn(&Kernels, &mut [f32], &[u8]);

/// A vector that no cache holds, to the wire and back in chunks of a frame and of a large one, by
/// the operations that ask for what comes next and by those that do not.
fn vector(criterion: &mut Criterion) {
    let mut values = vec![1f32; 16 << 20];
    let kernels = Kernels::detect();
    let mut group = criterion.benchmark_group("vector");
    group.throughput(Throughput::Bytes(4 * values.len() as u64));
    group.sample_size(10).measurement_time(Duration::from_secs(1));
    for elements in [352, 2240] {
        let mut wire = vec![0; elements * 4];
        let emits: [(_, Emit); 2] =
            [("emit_f32", Kernels::emit_f32), ("emit_f32_ahead", Kernels::emit_f32_ahead)];
        for (name, emit) in emits {
            group.bench_function(BenchmarkId::new(name, elements), |b| {
                b.iter(|| {
                    for chunk in values.chunks_exact(elements) {
                        emit(kernels, chunk, black_box(&mut wire));
                    }
                });
            });
        }
        let stores: [(_, Store); 2] =
            [("store_f32", Kernels::store_f32), ("store_f32_ahead", Kernels::store_f32_ahead)];
        for (name, store) in stores {
            group.bench_function(BenchmarkId::new(name, elements), |b| {
                b.iter(|| {
                    for chunk in values.chunks_exact_mut(elements) {
                        store(kernels, chunk, black_box(&wire));
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(200))
        .sample_size(20)
        .without_plots();
    targets = arithmetic, crc, vector
}
criterion_main!(benches);
