//! Models in several files: `NAME-00001-of-00003.gguf` and so on, next to each other.

/// The parts of a sharded model's file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// The name before the numbers.
    pub prefix: String,
    /// Which shard this is, from 1.
    pub index: u32,
    /// The number of shards.
    pub count: u32,
}

impl Shard {
    /// The file name of shard `index`, from 1.
    pub(crate) fn file_name(&self, index: u32) -> String {
        format!("{}-{index:05}-of-{:05}.gguf", self.prefix, self.count)
    }

    /// The file names of all shards, in order.
    pub(crate) fn file_names(&self) -> impl Iterator<Item = String> + '_ {
        (1..=self.count).map(|index| self.file_name(index))
    }
}

/// Parses a shard's file name; `None` if it is a whole model.
pub fn shard_of(file_name: &str) -> Option<Shard> {
    let number = |digits: &str| match digits.len() {
        5 if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse::<u32>().ok(),
        _ => None,
    };
    let (rest, count) = file_name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (prefix, index) = rest.rsplit_once('-')?;
    let (index, count) = (number(index)?, number(count)?);
    (index >= 1 && index <= count).then(|| Shard { prefix: prefix.to_owned(), index, count })
}
