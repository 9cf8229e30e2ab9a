//! Planning time: `cargo bench -p weft-plan`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use weft_plan::case::Case;
use weft_plan::net::ledger::Ledger;
use weft_plan::policy::order::order;
use weft_plan::sample::{Shape, TEN_THOUSAND, THOUSAND};

fn case(shape: Shape) -> Case {
    Case::new(&shape.spec(1)).expect("a sample is valid")
}

fn order_alone(criterion: &mut Criterion) {
    for (name, shape) in [("order/1000", THOUSAND), ("order/10000", TEN_THOUSAND)] {
        let case = case(shape);
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut ledger = Ledger::new(&case);
                black_box(order(&case, &mut ledger))
            });
        });
    }
}

criterion_group!(benches, order_alone);
criterion_main!(benches);
