use super::dot::Instructions;
use super::team::Team;
use super::*;
use proptest::prelude::*;

fn numbers(n: usize) -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(-2.0f32..2.0, n)
}

fn all_instructions() -> [Instructions; 2] {
    [Instructions::Portable, Instructions::detect()]
}

fn close(a: f32, b: f64) -> bool {
    (f64::from(a) - b).abs() < 1e-4
}

proptest! {
    #[test]
    fn products_equal_sums_in_double_precision(
        (width, rows, x, bias) in (1usize..200, 1usize..9)
            .prop_flat_map(|(width, n)| (Just(width), numbers(width * n), numbers(width), numbers(n)))
    ) {
        for instructions in all_instructions() {
            let mut out = vec![9.0; bias.len()];
            instructions.multiply(&rows, &x, Some(&bias), &mut out);
            for ((row, bias), out) in rows.chunks(width).zip(&bias).zip(&out) {
                let sum: f64 = row.iter().zip(&x).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                prop_assert!(close(*out, sum + f64::from(*bias)));
            }
        }
    }

    #[test]
    fn attention_is_the_mean_of_values_weighted_by_softmax(
        (width, query, keys, values) in (1usize..70, 1usize..20)
            .prop_flat_map(|(width, n)| (Just(width), numbers(width), numbers(width * n), numbers(width * n)))
    ) {
        let product = |key: &[f32]| key.iter().zip(&query).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>().exp();
        let weights: Vec<f64> = keys.chunks(width).map(product).collect();
        for instructions in all_instructions() {
            let (mut scores, mut out) = (vec![0.0; weights.len()], vec![7.0; width]);
            instructions.attend(&query, &keys, &values, &mut scores, &mut out);
            for (column, out) in out.iter().enumerate() {
                let sum: f64 = values.chunks(width).zip(&weights).map(|(value, w)| f64::from(value[column]) * w).sum();
                prop_assert!(close(*out, sum / weights.iter().sum::<f64>()));
            }
        }
    }
}

#[test]
fn every_part_is_worked_on_once_by_any_number_of_threads() {
    for n_threads in [1, 2, 3, 7] {
        let mut team = Team::new(n_threads);
        for round in 0..200 {
            team.work_alone(round % 5 == 4);
            let n_parts = round % (team.n_threads() + 1);
            let mut parts: Vec<usize> = (0..n_parts).collect();
            team.for_each(&mut parts, |part| *part = *part * 10 + round);
            assert_eq!(parts, (0..n_parts).map(|part| part * 10 + round).collect::<Vec<_>>());
            if round % 50 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(5)); // the threads sleep
            }
        }
    }
}

#[test]
fn a_panic_in_a_thread_ends_the_step_and_reaches_the_caller() {
    let mut team = Team::new(2);
    for failing in [0, 1] {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            team.for_each(&mut [0, 1], |part| assert_ne!(*part, failing, "expected"));
        }));
        assert!(result.is_err());
    }
}

#[test]
fn sizes_that_contradict_each_other_are_refused() {
    let (table, one) = ([0.5; 8], [1.0; 2]);
    let shape = Shape {
        d_model: 2,
        d_head: 2,
        n_heads: 1,
        n_kv_heads: 1,
        norm_first: true,
        centred: false,
        eps: 1e-5,
        activation: Activation::Relu,
        soft_cap: None,
    };
    let linear = |n: usize| Linear { weight: &table[..n], bias: None };
    let norm = Norm { weight: &one, bias: None };
    let block = |n| Block {
        norms: [norm, norm],
        qkv: [linear(4), linear(4), linear(4)],
        qk_norms: None,
        output: linear(4),
        up: vec![linear(n)],
        down: linear(4),
    };
    let model = |n| Model {
        shape,
        embedding: &table,
        positions: None,
        rotations: None,
        blocks: vec![block(n)],
        final_norm: Some(norm),
        head: linear(8),
    };
    let mut decoder = Decoder::new(2);
    let mut next = |n, token, n_cached| {
        let (mut keys, mut values, mut logits) = (vec![0.0; n_cached], vec![0.0; n_cached], [0.0; 4]);
        let mut caches = [Cache { keys: &mut keys, values: &mut values }];
        decoder.next_logits(&model(n), &mut caches, token, &mut logits).map(|()| logits)
    };
    assert!(next(4, (3, 0), 6).unwrap().iter().all(|x| x.is_finite()));
    for (n, token, n_cached) in [(2, (0, 0), 6), (4, (4, 0), 6), (4, (0, 0), 0), (4, (0, 0), 3)] {
        assert!(next(n, token, n_cached).is_err());
    }
}
