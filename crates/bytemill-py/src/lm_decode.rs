//! The next token of a language model on the CPU.

use crate::signals::to_python;
use bytemill::Error;
use bytemill::lm_decode::{Activation, Block, Cache, Decoder, Linear, Matrix, Model, Norm, Shape};
use numpy::{PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyReadwriteArrayDyn};
use pyo3::prelude::*;
use pyo3::types::PyDict;

type Floats = Py<PyArrayDyn<f32>>;

/// The array of a weight, or the codes and the scales of a quantized one.
#[derive(FromPyObject)]
enum Array {
    Float32(Floats),
    Int8(Py<PyArrayDyn<i8>>, Py<PyArrayDyn<u16>>),
    Int4(Py<PyArrayDyn<u8>>, Py<PyArrayDyn<u16>>),
}

/// Names of the weights of a block, in the order of `Slices::block`.
const BLOCK: [&str; 20] = [
    "ln1.weight",
    "ln1.bias",
    "ln2.weight",
    "ln2.bias",
    "q.weight",
    "q.bias",
    "k.weight",
    "k.bias",
    "v.weight",
    "v.bias",
    "q_norm",
    "k_norm",
    "output.weight",
    "output.bias",
    "w1.weight",
    "w1.bias",
    "w3.weight",
    "w3.bias",
    "w2.weight",
    "w2.bias",
];

/// Names of the other weights.
const MODEL: [&str; 6] = ["embedding", "positions", "rotations", "final.weight", "final.bias", "head"];

/// Computes the logits after a token, and adds its keys and values to the caches.
#[pyclass(name = "TokenDecoder", module = "bytemill._core")]
pub struct PyTokenDecoder {
    decoder: Decoder,
    shape: Shape,
    weights: Vec<Option<Array>>,
    blocks: Vec<Vec<Option<Array>>>,
    caches: Vec<(Floats, Floats)>,
    vocab_size: usize,
}

#[pymethods]
impl PyTokenDecoder {
    #[new]
    fn new(
        shape: &Bound<'_, PyDict>,
        weights: &Bound<'_, PyDict>,
        blocks: Vec<Bound<'_, PyDict>>,
        caches: Vec<(Floats, Floats)>,
        num_threads: usize,
    ) -> PyResult<Self> {
        let size = |name| required(shape, name)?.extract::<usize>();
        let shape_of = Shape {
            d_model: size("d_model")?,
            d_head: size("d_head")?,
            n_heads: size("n_heads")?,
            n_kv_heads: size("n_kv_heads")?,
            norm_first: required(shape, "norm_first")?.extract()?,
            centred: required(shape, "centred")?.extract()?,
            eps: required(shape, "eps")?.extract()?,
            activation: activation(&required(shape, "activation")?.extract::<String>()?)?,
            soft_cap: required(shape, "soft_cap")?.extract()?,
        };
        Ok(Self {
            decoder: Decoder::new(num_threads),
            shape: shape_of,
            weights: arrays(weights, &MODEL)?,
            blocks: blocks.iter().map(|block| arrays(block, &BLOCK)).collect::<PyResult<_>>()?,
            caches,
            vocab_size: size("vocab_size")?,
        })
    }

    /// Logits after the token `token_id` at `position`; `alone`: on the calling thread alone.
    #[pyo3(signature = (token_id, position, *, alone = false))]
    fn next_logits<'py>(
        &mut self,
        py: Python<'py>,
        token_id: usize,
        position: usize,
        alone: bool,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let weights = Guards::new(py, &self.weights)?;
        let blocks: Vec<_> = self.blocks.iter().map(|block| Guards::new(py, block)).collect::<PyResult<_>>()?;
        let blocks = blocks.iter().map(|block| Ok(block.slices()?.block())).collect::<PyResult<_>>()?;
        let model = weights.slices()?.model(self.shape, blocks);
        let arrays = self.caches.iter().flat_map(|(keys, values)| [keys, values]);
        let mut arrays: Vec<_> = arrays.map(|array| array.bind(py).try_readwrite()).collect::<Result<_, _>>()?;
        let mut slices: Vec<_> = arrays.iter_mut().map(PyReadwriteArrayDyn::as_slice_mut).collect::<Result<_, _>>()?;
        let (pairs, _) = slices.as_chunks_mut::<2>();
        let mut caches: Vec<_> = pairs.iter_mut().map(|[keys, values]| Cache { keys, values }).collect();
        let mut logits = vec![0.0; self.vocab_size];
        let decoder = &mut self.decoder;
        decoder.work_alone(alone);
        py.detach(|| decoder.next_logits(&model, &mut caches, (token_id, position), &mut logits)).map_err(to_python)?;
        Ok(PyArray1::from_vec(py, logits))
    }
}

/// Keeps arrays from being written by other calls of this package while their memory is in use.
struct Guards<'py>(Vec<Option<Guard<'py>>>);

enum Guard<'py> {
    Float32(PyReadonlyArrayDyn<'py, f32>),
    Int8(PyReadonlyArrayDyn<'py, i8>, PyReadonlyArrayDyn<'py, u16>),
    Int4(PyReadonlyArrayDyn<'py, u8>, PyReadonlyArrayDyn<'py, u16>),
}

impl<'py> Guard<'py> {
    fn new(py: Python<'py>, array: &Array) -> PyResult<Self> {
        Ok(match array {
            Array::Float32(array) => Self::Float32(array.bind(py).try_readonly()?),
            Array::Int8(codes, scales) => Self::Int8(codes.bind(py).try_readonly()?, scales.bind(py).try_readonly()?),
            Array::Int4(codes, scales) => Self::Int4(codes.bind(py).try_readonly()?, scales.bind(py).try_readonly()?),
        })
    }

    fn matrix(&self) -> PyResult<Matrix<'_>> {
        Ok(match self {
            Self::Float32(array) => Matrix::Float32(array.as_slice()?),
            Self::Int8(codes, scales) => Matrix::Int8 { codes: codes.as_slice()?, scales: scales.as_slice()? },
            Self::Int4(codes, scales) => Matrix::Int4 { codes: codes.as_slice()?, scales: scales.as_slice()? },
        })
    }
}

impl<'py> Guards<'py> {
    fn new(py: Python<'py>, arrays: &[Option<Array>]) -> PyResult<Self> {
        let guard = |array: &Option<Array>| array.as_ref().map(|array| Guard::new(py, array)).transpose();
        Ok(Self(arrays.iter().map(guard).collect::<Result<_, _>>()?))
    }

    fn slices(&self) -> PyResult<Slices<'_>> {
        let guards = self.0.iter().map(Option::as_ref);
        Ok(Slices(guards.map(|guard| guard.map(Guard::matrix).transpose()).collect::<Result<_, _>>()?))
    }
}

/// The numbers of arrays by the order of their names; a missing one is empty, which the core refuses if it is needed.
struct Slices<'w>(Vec<Option<Matrix<'w>>>);

impl<'w> Slices<'w> {
    /// The numbers of a vector or table, which is never quantized.
    fn floats(&self, index: usize) -> Option<&'w [f32]> {
        match self.0[index] {
            Some(Matrix::Float32(floats)) => Some(floats),
            _ => None,
        }
    }

    fn matrix(&self, index: usize) -> Matrix<'w> {
        self.0[index].unwrap_or(Matrix::Float32(&[]))
    }

    fn norm(&self, index: usize) -> Norm<'w> {
        Norm { weight: self.floats(index).unwrap_or_default(), bias: self.floats(index + 1) }
    }

    fn linear(&self, index: usize) -> Linear<'w> {
        Linear { weight: self.matrix(index), bias: self.floats(index + 1) }
    }

    fn block(&self) -> Block<'w> {
        let mut up = vec![self.linear(14)];
        up.extend(self.0[16].map(|_| self.linear(16)));
        Block {
            norms: [self.norm(0), self.norm(2)],
            qkv: [self.linear(4), self.linear(6), self.linear(8)],
            qk_norms: self.floats(10).zip(self.floats(11)).map(|(q, k)| [q, k]),
            output: self.linear(12),
            up,
            down: self.linear(18),
        }
    }

    fn model(&self, shape: Shape, blocks: Vec<Block<'w>>) -> Model<'w> {
        Model {
            shape,
            embedding: self.matrix(0),
            positions: self.floats(1),
            rotations: self.floats(2),
            blocks,
            final_norm: self.0[3].map(|_| self.norm(3)),
            head: Linear { weight: self.matrix(5), bias: None },
        }
    }
}

fn arrays(by_name: &Bound<'_, PyDict>, names: &[&str]) -> PyResult<Vec<Option<Array>>> {
    let array = |name: &&str| match by_name.get_item(name)? {
        Some(array) => Ok(array.extract::<Option<Array>>()?),
        None => Ok(None),
    };
    names.iter().map(array).collect()
}

fn required<'py>(dict: &Bound<'py, PyDict>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    dict.get_item(name)?.ok_or_else(|| to_python(Error::Invalid(format!("{name} is missing"))))
}

fn activation(name: &str) -> PyResult<Activation> {
    Ok(match name {
        "swiglu" => Activation::SwiGlu,
        "gelu" => Activation::Gelu,
        "gelu_exact" => Activation::GeluExact,
        "relu" => Activation::Relu,
        "relu2" => Activation::Relu2,
        _ => return Err(to_python(Error::Invalid(format!("unknown activation function {name:?}")))),
    })
}
