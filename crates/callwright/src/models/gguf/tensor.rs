//! The element types of tensors, and the quantisations of files.

/// An element type of ggml: elements come in blocks of `block` elements that take `bytes` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TensorType {
    /// ggml's name of it, such as `Q4_K`.
    pub name: &'static str,
    /// Elements in a block.
    pub block: u64,
    /// Bytes in a block.
    pub bytes: u64,
}

const fn ty(name: &'static str, block: u64, bytes: u64) -> Option<TensorType> {
    Some(TensorType { name, block, bytes })
}

/// Indexed by `ggml_type`; a type that ggml has removed is `None`.
const TENSOR_TYPES: [Option<TensorType>; 43] = [
    ty("F32", 1, 4),
    ty("F16", 1, 2),
    ty("Q4_0", 32, 18),
    ty("Q4_1", 32, 20),
    None,
    None,
    ty("Q5_0", 32, 22),
    ty("Q5_1", 32, 24),
    ty("Q8_0", 32, 34),
    ty("Q8_1", 32, 36),
    ty("Q2_K", 256, 84),
    ty("Q3_K", 256, 110),
    ty("Q4_K", 256, 144),
    ty("Q5_K", 256, 176),
    ty("Q6_K", 256, 210),
    ty("Q8_K", 256, 292),
    ty("IQ2_XXS", 256, 66),
    ty("IQ2_XS", 256, 74),
    ty("IQ3_XXS", 256, 98),
    ty("IQ1_S", 256, 50),
    ty("IQ4_NL", 32, 18),
    ty("IQ3_S", 256, 110),
    ty("IQ2_S", 256, 82),
    ty("IQ4_XS", 256, 136),
    ty("I8", 1, 1),
    ty("I16", 1, 2),
    ty("I32", 1, 4),
    ty("I64", 1, 8),
    ty("F64", 1, 8),
    ty("IQ1_M", 256, 56),
    ty("BF16", 1, 2),
    None,
    None,
    None,
    ty("TQ1_0", 256, 54),
    ty("TQ2_0", 256, 66),
    None,
    None,
    None,
    ty("MXFP4", 32, 17),
    ty("NVFP4", 64, 36),
    ty("Q1_0", 128, 18),
    ty("Q2_0", 64, 18),
];

/// The element type with ggml's number `id`.
pub(super) fn tensor_type(id: u32) -> Option<TensorType> {
    TENSOR_TYPES.get(id as usize).copied().flatten()
}

/// Common quantisations with hundredths of a bit for each weight, the largest first, as in files of Llama 3.1 8B.
const SIZES: [(&str, u64); 6] =
    [("Q8_0", 850), ("Q6_K", 656), ("Q5_K_M", 570), ("Q4_K_M", 489), ("Q3_K_M", 400), ("Q2_K", 316)];

/// The largest quantisation of so many weights that has at most so many bytes, and about how many it has.
pub fn that_fits(weights: u64, bytes: u64) -> Option<(&'static str, u64)> {
    let sizes = SIZES.iter().map(|(name, bits)| (*name, (weights / 800).saturating_mul(*bits)));
    sizes.into_iter().find(|(_, size)| *size <= bytes)
}

/// The common name of `general.file_type`, such as `Q4_K_M`.
pub(super) fn file_type_name(id: u64) -> Option<&'static str> {
    Some(match id {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        7 => "Q8_0",
        8 => "Q5_0",
        9 => "Q5_1",
        10 => "Q2_K",
        11 => "Q3_K_S",
        12 => "Q3_K_M",
        13 => "Q3_K_L",
        14 => "Q4_K_S",
        15 => "Q4_K_M",
        16 => "Q5_K_S",
        17 => "Q5_K_M",
        18 => "Q6_K",
        19 => "IQ2_XXS",
        20 => "IQ2_XS",
        21 => "Q2_K_S",
        22 => "IQ3_XS",
        23 => "IQ3_XXS",
        24 => "IQ1_S",
        25 => "IQ4_NL",
        26 => "IQ3_S",
        27 => "IQ3_M",
        28 => "IQ2_S",
        29 => "IQ2_M",
        30 => "IQ4_XS",
        31 => "IQ1_M",
        32 => "BF16",
        36 => "TQ1_0",
        37 => "TQ2_0",
        38 => "MXFP4",
        39 => "NVFP4",
        40 => "Q1_0",
        41 => "Q2_0",
        _ => return None,
    })
}

/// A tensor, as described in the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tensor {
    /// Its name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Its shape, the fastest dimension first; one to four numbers.
    pub shape: Vec<u64>,
    /// Its element type.
    pub kind: TensorType,
    /// Start of its data in the data section.
    pub offset: u64,
    /// Size of its data in bytes.
    pub bytes: u64,
}

impl Tensor {
    /// The number of its elements.
    pub(crate) fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}
