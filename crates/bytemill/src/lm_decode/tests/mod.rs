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

/// The value of the bits of a float16, by its definition.
fn float16_by_definition(bits: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023) / 1024.0);
    let magnitude = if exponent == 0 { mantissa * 2f64.powi(-14) } else { (1.0 + mantissa) * 2f64.powi(exponent - 15) };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

#[test]
fn all_finite_halves_are_converted_exactly() {
    for bits in (0..=u16::MAX).filter(|bits| bits >> 10 & 31 != 31) {
        assert_eq!(f64::from(matrix::float16(bits)), float16_by_definition(bits));
    }
}

/// The weights of a quantized matrix, by its definition.
fn weights_of(matrix: &Matrix<'_>) -> Vec<f64> {
    (0..matrix.n_weights())
        .map(|number| {
            let (group, place) = (number / 32, number % 32);
            match matrix {
                Matrix::Float32(weights) => f64::from(weights[number]),
                Matrix::Int8 { codes, scales } => f64::from(codes[number]) * float16_by_definition(scales[group]),
                Matrix::Int4 { codes, scales } => {
                    let byte = codes[16 * group + place % 16];
                    let code = if place < 16 { byte & 15 } else { byte >> 4 };
                    (f64::from(code) - 8.0) * float16_by_definition(scales[group])
                }
            }
        })
        .collect()
}

proptest! {
    #[test]
    fn products_and_rows_of_quantized_weights_equal_sums_in_double_precision(
        (width, codes, scales, x) in (1usize..9, 1usize..6).prop_flat_map(|(n_groups, n_rows)| (
            Just(32 * n_groups),
            prop::collection::vec(any::<i8>(), 32 * n_groups * n_rows),
            // Magnitudes from 0 over subnormal numbers to 1/32, of both signs.
            prop::collection::vec((0u16..=0x2800, any::<bool>()).prop_map(|(bits, sign)| bits | u16::from(sign) << 15),
                n_groups * n_rows),
            numbers(32 * n_groups),
        ))
    ) {
        let packed: Vec<u8> = codes[..codes.len() / 2].iter().map(|code| code.cast_unsigned()).collect();
        let int8 = Matrix::Int8 { codes: &codes, scales: &scales };
        let int4 = Matrix::Int4 { codes: &packed, scales: &scales };
        for matrix in [int8, int4] {
            let weights = weights_of(&matrix);
            for instructions in all_instructions() {
                let mut out = vec![9.0; weights.len() / width];
                instructions.multiply(matrix, &x, None, &mut out);
                for (row, out) in weights.chunks(width).zip(&out) {
                    let products = || row.iter().zip(&x).map(|(a, b)| a * f64::from(*b));
                    let bound = 1e-5 * products().map(f64::abs).sum::<f64>() + 1e-30;
                    prop_assert!((f64::from(*out) - products().sum::<f64>()).abs() <= bound);
                }
            }
            for (number, row) in weights.chunks(width).enumerate() {
                let own = matrix.row(number, width).unwrap();
                prop_assert!(own.iter().zip(row).all(|(a, b)| f64::from(*a) == *b));
            }
            prop_assert!(matrix.row(weights.len() / width, width).is_err());
        }
    }
}

#[test]
fn quantized_rows_are_whole_groups_with_a_scale_each() {
    let (codes, scales) = ([1i8; 128], [1u16; 4]);
    assert!(Matrix::Int8 { codes: &codes, scales: &scales }.has_rows_of(64));
    assert!(!Matrix::Int8 { codes: &codes, scales: &scales }.has_rows_of(16));
    assert!(!Matrix::Int8 { codes: &codes, scales: &scales[..3] }.has_rows_of(64));
    assert!(!Matrix::Int8 { codes: &codes[..96], scales: &scales[..3] }.has_rows_of(64));
    assert!(Matrix::Int4 { codes: &[7; 64], scales: &scales }.has_rows_of(64));
    assert!(!Matrix::Int4 { codes: &[7; 128], scales: &scales }.has_rows_of(64));
}

proptest! {
    #[test]
    fn products_equal_sums_in_double_precision(
        (width, rows, x, bias) in (1usize..200, 1usize..9)
            .prop_flat_map(|(width, n)| (Just(width), numbers(width * n), numbers(width), numbers(n)))
    ) {
        for instructions in all_instructions() {
            let mut out = vec![9.0; bias.len()];
            instructions.multiply(Matrix::Float32(&rows), &x, Some(&bias), &mut out);
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
    let linear = |n: usize| Linear { weight: Matrix::Float32(&table[..n]), bias: None };
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
        embedding: Matrix::Float32(&table),
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
