//! Chooses the GGUF file in a repository, if none is named.

use super::gguf::shard_of;
use super::hub::{Hub, HubFile};
use crate::error::{Error, ErrorKind, Result};
use crate::setting::Setting;
use std::path::Path;

/// The quantizations to choose if none is named, in llama.cpp's order of preference.
const PREFERRED: [&str; 3] = ["Q4_K_M", "Q8_0", "Q4_0"];

/// A repository, and the wanted quantization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HubRepo {
    /// `ORG/REPO`.
    pub repo: String,
    /// Such as `Q4_K_M`; in upper or lower case.
    pub quant: Option<String>,
    /// A branch, tag or commit.
    pub revision: String,
}

impl HubRepo {
    /// Reads `hf:ORG/REPO[:QUANT][@REVISION]`; `None` for anything else, such as a file in a repository.
    pub(crate) fn parse(model: &str) -> Option<HubRepo> {
        let rest = model.strip_prefix("hf:")?;
        let (path, revision) = rest.split_once('@').unwrap_or((rest, "main"));
        let (repo, quant) = path.split_once(':').map_or((path, None), |(repo, quant)| (repo, Some(quant)));
        let (org, name) = repo.split_once('/')?;
        let plain = |part: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            !part.is_empty() && !part.starts_with('.') && part.chars().all(known)
        };
        let all = [org, name].into_iter().chain(quant).chain(revision.split('/')).all(plain);
        (all && !name.ends_with(".gguf")).then(|| HubRepo {
            repo: repo.to_owned(),
            quant: quant.map(str::to_owned),
            revision: revision.to_owned(),
        })
    }

    /// Chooses one of these files: of the wanted quantization, or else of a preferred one, or else the first. Never a
    /// projector for images, nor a later shard.
    pub(crate) fn choose<'f>(&self, files: impl IntoIterator<Item = &'f str>) -> Option<&'f str> {
        let mut models: Vec<&str> = files.into_iter().filter(|file| is_model(file)).collect();
        models.sort_unstable();
        let with = |quant: &str| models.iter().find(|file| has_quant(file, quant)).copied();
        match &self.quant {
            Some(quant) => with(quant),
            None => PREFERRED.into_iter().find_map(with).or(models.first().copied()),
        }
    }

    fn file(&self, file: &str) -> Result<HubFile> {
        HubFile::parse(&format!("{}/{file}@{}", self.repo, self.revision))
            .map_err(|why| Error::new(ErrorKind::Hub, format!("{file:?} in {} cannot be used: {why}", self.repo)))
    }
}

impl Hub {
    /// Chooses the file in a repository. A cached one is used without a request.
    ///
    /// # Errors
    /// [`ErrorKind::ModelNotFound`] if there is no such file, or [`Hub::offline`] forbids the request;
    /// [`ErrorKind::Hub`] if the request fails.
    pub(crate) fn choose(&self, wanted: &HubRepo) -> Result<HubFile> {
        let cached = self.cached_files(wanted);
        if let Some(file) = wanted.choose(cached.iter().map(String::as_str)) {
            return wanted.file(file);
        }
        let files = self.files_of(wanted)?;
        if let Some(file) = wanted.choose(files.iter().map(String::as_str)) {
            return wanted.file(file);
        }
        let mut models: Vec<&str> = files.iter().map(String::as_str).filter(|file| is_model(file)).collect();
        models.sort_unstable();
        let place = format!("{} at {}", wanted.repo, wanted.revision);
        if models.is_empty() {
            return Err(Error::new(ErrorKind::ModelNotFound, format!("{place} has no model in GGUF form"))
                .hint("look for a repository whose name ends in GGUF"));
        }
        let quant = wanted.quant.as_deref().unwrap_or_default();
        let more = if models.len() > 8 { ", …" } else { "" };
        Err(Error::new(ErrorKind::ModelNotFound, format!("{place} has no file of the quantization {quant}"))
            .hint(format!("it has {}{more}", models[..models.len().min(8)].join(", "))))
    }

    fn files_of(&self, wanted: &HubRepo) -> Result<Vec<String>> {
        if self.offline {
            let message = format!("no file of {} is in the cache {}", wanted.repo, self.cache.display());
            return Err(Error::new(ErrorKind::ModelNotFound, message)
                .hint(format!("leave out {} (and HF_HUB_OFFLINE) to download one", Setting::Offline)));
        }
        #[cfg(feature = "hub")]
        return super::download::list(self, wanted);
        #[cfg(not(feature = "hub"))]
        Err(Error::new(ErrorKind::Hub, "this build cannot download: it was made without the feature \"hub\"")
            .hint(format!("download a file from {}/{} and give its path", self.endpoint, wanted.repo)))
    }
}

/// Returns whether a file of a repository is a model, or the first shard of one.
fn is_model(file: &str) -> bool {
    let name = Path::new(file).file_name().and_then(|name| name.to_str()).unwrap_or(file);
    name.ends_with(".gguf")
        && !name.to_ascii_lowercase().contains("mmproj")
        && shard_of(name).is_none_or(|shard| shard.index == 1)
}

/// Returns whether a file's path names the quantization, as a whole word: `Q4_K` is not `Q4_K_M`.
fn has_quant(file: &str, quant: &str) -> bool {
    let (file, quant) = (file.to_ascii_lowercase(), quant.to_ascii_lowercase());
    let ends = |at: usize| !file[at..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let begins = |at: usize| !file[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    file.match_indices(&quant).any(|(at, found)| begins(at) && ends(at + found.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo(quant: Option<&str>) -> HubRepo {
        HubRepo { repo: "org/repo".into(), quant: quant.map(str::to_owned), revision: "main".into() }
    }

    #[test]
    fn a_repository_differs_from_a_file_in_it() {
        assert_eq!(HubRepo::parse("hf:org/repo"), Some(repo(None)));
        assert_eq!(HubRepo::parse("hf:org/repo:q8_0"), Some(repo(Some("q8_0"))));
        let tagged = HubRepo { revision: "v1".into(), ..repo(Some("Q8_0")) };
        assert_eq!(HubRepo::parse("hf:org/repo:Q8_0@v1"), Some(tagged));
        for other in
            ["org/repo", "hf:org", "hf:org/repo/a.gguf", "hf:org/a.gguf", "hf:org/repo:", "hf:../x", "hf:o/r:a/b"]
        {
            assert_eq!(HubRepo::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_quantization_selects_the_file() {
        let all = ["README.md", "a-F16.gguf", "a-Q4_0.gguf", "a-Q4_K_S.gguf", "a-q4_k_m.gguf", "a-Q8_0.gguf"];
        assert_eq!(repo(None).choose(all), Some("a-q4_k_m.gguf"));
        assert_eq!(repo(None).choose(all[..4].iter().copied()), Some("a-Q4_0.gguf"));
        assert_eq!(repo(None).choose(["a-Q4_0.gguf", "a-Q8_0.gguf"]), Some("a-Q8_0.gguf"));
        assert_eq!(repo(None).choose(["b-F16.gguf", "a-BF16.gguf"]), Some("a-BF16.gguf"));
        assert_eq!(repo(Some("q8_0")).choose(all), Some("a-Q8_0.gguf"));
        assert_eq!(repo(Some("F16")).choose(["a-BF16.gguf"]), None);
        assert_eq!(repo(Some("Q4_K")).choose(all), None, "Q4_K is another one than Q4_K_M");
        assert_eq!(repo(None).choose(["README.md"]), None);
    }

    #[test]
    fn neither_a_projector_nor_a_later_shard_is_a_model() {
        let files =
            ["mmproj-Q4_K_M.gguf", "Q4_K_M/a-Q4_K_M-00002-of-00002.gguf", "Q4_K_M/a-Q4_K_M-00001-of-00002.gguf"];
        assert_eq!(repo(None).choose(files), Some("Q4_K_M/a-Q4_K_M-00001-of-00002.gguf"));
        assert_eq!(repo(None).choose(["mmproj-a-F16.gguf"]), None);
    }
}
