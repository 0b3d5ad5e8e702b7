use super::*;
use std::fs;
use std::path::{Path, PathBuf};

fn tokens(numbers: impl IntoIterator<Item = i32>) -> Vec<Token> {
    numbers.into_iter().map(Token).collect()
}

fn wanted(prompt: &[Token]) -> Wanted<'_> {
    Wanted { prompt, have: 0, most: prompt.len() - 1, reading: Reading::Full }
}

fn on_disk(folder: &Path) -> PromptCache {
    PromptCache::new(0, Some(Disk::new(folder.to_owned(), "key", "a model", 1 << 20, true)), true)
}

/// The cache after what it writes is on disk.
fn written(cache: PromptCache, folder: &Path) -> PromptCache {
    drop(cache);
    on_disk(folder)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder.join("key")).into_iter().flatten().flatten().map(|file| file.path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "prompt")).collect()
}

#[test]
fn the_longest_common_beginning_is_found() {
    let cache = PromptCache::new(1 << 20, None, true);
    cache.keep(&tokens(0..100), 0, &[], || Some(vec![1]));
    cache.keep(&tokens((0..60).chain(500..600)), 0, &[], || Some(vec![2]));
    let found = |prompt: &[Token]| cache.find(wanted(prompt)).map(|(_, entry)| entry.state[0]);
    assert_eq!(found(&tokens((0..90).chain(900..999))), Some(1));
    assert_eq!(found(&tokens((0..60).chain(500..580))), Some(2));
    assert_eq!(found(&tokens(0..20)), None, "too little to be worth it");
    let prompt = tokens(0..100);
    assert!(cache.find(Wanted { have: 80, ..wanted(&prompt) }).is_none(), "the context has almost as much");
    assert_eq!(cache.known(&tokens(0..75)), 75);
}

#[test]
fn a_model_that_cannot_truncate_goes_on_from_whole_entries_only() {
    let cache = PromptCache::new(1 << 20, None, false);
    cache.keep(&tokens(0..100), 0, &[], || Some(vec![1]));
    cache.keep(&tokens(0..50), 0, &[], || Some(vec![2]));
    let found = |prompt: &[Token]| cache.find(wanted(prompt)).map(|(_, entry)| entry.state[0]);
    assert_eq!(found(&tokens(0..200)), Some(1));
    assert_eq!(found(&tokens(0..90)), Some(2), "a beginning is kept beside what goes on from it");
    assert_eq!(found(&tokens(0..50)), None, "the last token of a prompt has to be decoded");
}

fn checkpoints(places: &[usize], bytes: usize) -> Vec<Checkpoint> {
    places.iter().map(|at| Checkpoint { at: *at, state: vec![*at as u8; bytes].into() }).collect()
}

#[test]
fn a_model_that_cannot_truncate_goes_on_from_checkpoints_in_memory_and_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let disk = || Disk::new(folder.path().to_owned(), "key", "a model", 1 << 20, true);
    let (memory, kept) = (PromptCache::new(1 << 20, None, false), checkpoints(&[40, 90], 10));
    memory.keep(&tokens(0..100), 0, &kept, || Some(vec![1]));
    PromptCache::new(0, Some(disk()), false).write(&tokens(0..100), 0, &kept, vec![1]);
    for cache in [memory, PromptCache::new(0, Some(disk()), false)] {
        let found = |prompt: &[Token]| cache.find(wanted(prompt)).map(|(used, _)| used);
        assert_eq!(found(&tokens(0..200)), Some(100));
        assert_eq!(found(&tokens((0..95).chain(900..950))), Some(90));
        assert_eq!(found(&tokens((0..60).chain(900..950))), Some(40));
        assert_eq!(found(&tokens((0..39).chain(900..950))), None);
        let (_, entry) = cache.find(wanted(&tokens(0..200))).unwrap();
        let states: Vec<(usize, u8)> = entry.checkpoints.iter().map(|one| (one.at, one.state[0])).collect();
        assert_eq!(states, [(40, 40), (90, 90)]);
        // A conversation that goes on replaces its beginning, since it can go back there.
        cache.keep(&tokens(0..99), 0, &[], || panic!("it is known"));
    }
}

#[test]
fn checkpoints_count_in_the_memory_for_prompts() {
    let cache = PromptCache::new(10_000, None, false);
    let mut live = Checkpoints::default();
    cache.keep(&tokens(0..100), 0, &[], || Some(vec![0; 4000]));
    for at in 1..=20 {
        live.push(100 * at, vec![0; 1000], &cache);
    }
    assert_eq!(live.kept().len(), 2, "a quarter of the memory");
    assert_eq!(live.kept().last().map(|last| last.at), Some(2000));
    assert!(cache.find(wanted(&tokens(0..200))).is_some(), "an entry has room beside them");
    let states: Vec<_> = (0..8).map(|_| cache.hold(vec![0; 1000])).collect();
    assert!(states.iter().all(Option::is_some) && cache.find(wanted(&tokens(0..200))).is_none());
    assert!(cache.hold(vec![0; 1000]).is_none(), "there is no room");
    drop((states, live));
    assert!(cache.hold(vec![0; 1000]).is_some());
    assert!(PromptCache::new(0, None, false).hold(vec![0]).is_none(), "nothing is to be kept");
}

#[test]
fn checkpoints_are_where_messages_begin_and_closer_to_the_end() {
    let cache = PromptCache::new(1 << 30, None, false);
    let mut live = Checkpoints::default();
    let read =
        |live: &mut Checkpoints, tokens: usize, messages: &[usize], from: usize, known: usize, question: usize| {
            let prompt =
                Outline { tokens, messages: messages.to_vec(), known, question, apart: 8, whole: tokens == 1000 };
            live.plan(&prompt, from);
            let mut at = from;
            while let Some(ahead) = live.ahead(at, tokens - at, 1) {
                at += ahead;
                live.push(at, vec![0; 10], &cache);
            }
            live.kept().iter().map(|one| one.at).collect::<Vec<usize>>()
        };
    let places = read(&mut live, 1000, &[0, 400, 404, 450, 996], 0, 0, 0);
    assert_eq!(places, [400, 450, 996, 999, 1000], "none beside another, one before the last token and one after it");
    live.truncate(996);
    let places = read(&mut live, 1200, &[0, 400, 450, 996, 1100], 996, 1050, 0);
    assert_eq!(places, [400, 450, 996, 1050, 1100, 1199]);
    // A long conversation.
    let mut live = Checkpoints::default();
    let messages: Vec<usize> = (0..200).map(|message| 500 + 100 * message).collect();
    let places = read(&mut live, 20_501, &messages, 0, 0, 4_650);
    assert_eq!(places.len(), checkpoints::MOST);
    for place in [500, 4_600, 4_700, 20_300, 20_400, 20_500] {
        assert!(places.contains(&place), "{place} of {places:?}");
    }
    let farthest = places.windows(2).max_by_key(|two| two[1] - two[0]).unwrap();
    assert!(farthest[1] < 15_000, "{places:?}");
}

#[test]
fn what_was_read_with_flash_attention_is_continued_with_it() {
    let cache = PromptCache::new(1 << 20, None, true);
    cache.keep(&tokens(0..1000), 800, &[], || Some(vec![1]));
    let used = |prompt: &[Token], reading| cache.find(Wanted { reading, ..wanted(prompt) }).map(|(used, _)| used);
    let [same, longer, shorter, other] =
        [tokens(0..801), tokens(0..2000), tokens(0..500), tokens((0..400).chain(3000..3040))];
    assert_eq!(used(&same, Reading::Flash), Some(800), "only the last token is left");
    assert_eq!(used(&longer, Reading::Flash), Some(800));
    assert_eq!(used(&shorter, Reading::Flash), Some(499));
    assert_eq!(used(&other, Reading::Flash), Some(439 - 64), "the rest is not too short for flash attention");
    assert_eq!([Reading::Full, Reading::Any].map(|reading| used(&longer, reading)), [None, Some(1000)]);
}

#[test]
fn memory_keeps_what_was_used_last_within_its_budget() {
    let size = |count: usize| (count * 4 + 1000) as u64;
    let cache = PromptCache::new(2 * size(100), None, true);
    for start in [0, 1000, 2000] {
        cache.keep(&tokens(start..start + 100), 0, &[], || Some(vec![0; 1000]));
        // The first one is in use.
        assert!(cache.find(wanted(&tokens(0..101))).is_some());
    }
    assert!(cache.find(wanted(&tokens(1000..1101))).is_none());
    assert!(cache.find(wanted(&tokens(2000..2101))).is_some());
    // What goes on from an entry replaces it; what an entry covers is not even asked for.
    cache.keep(&tokens(0..110), 0, &[], || Some(vec![0; 900]));
    assert_eq!(cache.lock().entries.len(), 2);
    cache.keep(&tokens(0..90), 0, &[], || panic!("it is known"));
}

#[test]
fn a_prompt_is_kept_if_its_state_comes_back_faster_than_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let disk = |always| Disk::new(folder.path().to_owned(), "key", "a model", 1 << 20, always);
    let kept = tokens(0..100);
    let (soon, later) = (Duration::from_millis(400), Duration::from_millis(600));
    let cache = PromptCache::new(0, Some(disk(false)), true);
    assert!(!cache.is_worth_writing(&kept, soon, || 0), "it takes little time anyhow");
    assert!(cache.is_worth_writing(&kept, later, || 200_000_000));
    assert!(!cache.is_worth_writing(&kept, later, || 400_000_000), "a GPU reads it faster than a disk");
    let cache = PromptCache::new(0, Some(disk(true)), true);
    assert!(cache.is_worth_writing(&kept, soon, || 400_000_000), "all are wanted");
}

#[test]
fn a_prompt_on_disk_is_found_by_another_run() {
    let folder = tempfile::tempdir().unwrap();
    let cache = on_disk(folder.path());
    let kept = tokens(0..100);
    assert!(cache.is_worth_writing(&kept, Duration::ZERO, || 0));
    cache.write(&kept, 0, &[], b"state".to_vec());
    let cache = written(cache, folder.path());
    let (used, entry) = cache.find(wanted(&tokens(0..200))).unwrap();
    assert_eq!(used, 100);
    assert_eq!((&entry.tokens[..], &entry.state[..]), (&kept[..], &b"state"[..]));
    assert!(!cache.is_worth_writing(&tokens(0..110), Duration::ZERO, || 0), "there is almost as much");
    // A longer one replaces it.
    cache.write(&tokens(0..150), 0, &[], b"more".to_vec());
    let cache = written(cache, folder.path());
    assert_eq!(files(folder.path()).len(), 1);
    assert_eq!(cache.known(&tokens(0..500)), 150);
    let listed = list(folder.path());
    assert_eq!((listed[0].model.as_str(), listed[0].prompts, listed[0].longest), ("a model", 1, 150));
    assert_eq!(clear(folder.path()).unwrap().0, 1);
    assert!(list(folder.path()).is_empty() && written(cache, folder.path()).find(wanted(&tokens(0..200))).is_none());
}

#[test]
fn a_damaged_file_is_ignored_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let cache = on_disk(folder.path());
    cache.write(&tokens(0..100), 0, &checkpoints(&[50, 60], 9), b"some state".to_vec());
    drop(cache);
    let path = files(folder.path()).pop().unwrap();
    let whole = fs::read(&path).unwrap();
    let found = || on_disk(folder.path()).find(wanted(&tokens(0..200))).map(|(_, entry)| entry.state.to_vec());
    assert_eq!(found(), Some(b"some state".to_vec()));
    for place in (0..whole.len()).step_by(7).chain([8, 15, 16, 23]) {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x40;
        fs::write(&path, &damaged).unwrap();
        assert_eq!(found(), None, "a bit of byte {place} was changed");
    }
    for length in (0..whole.len()).step_by(13) {
        fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(found(), None, "cut to {length} bytes");
    }
    fs::write(&path, [&whole[..], b"more"].concat()).unwrap();
    assert_eq!(found(), None);
    assert!(!path.exists(), "what cannot be read is removed");
}

#[test]
fn the_folder_stays_within_its_budget_and_is_private() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("prompts");
    for start in [0, 1000, 2000] {
        let disk = Disk::new(root.clone(), "key", "a model", 2500, true);
        PromptCache::new(0, Some(disk), true).write(&tokens(start..start + 10), 0, &[], vec![0; 1000]);
        // Files of the same millisecond have no order.
        std::thread::sleep(Duration::from_millis(20));
    }
    let cache = PromptCache::new(0, Some(Disk::new(root.clone(), "key", "a model", 2500, true)), true);
    assert_eq!([0, 1000, 2000].map(|start| cache.known(&tokens(start..start + 10))), [0, 10, 10]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&root), 0o700);
        assert!(files(&root).iter().all(|file| mode(file) == 0o600));
    }
}

#[test]
fn a_folder_that_cannot_be_written_changes_nothing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let cache = on_disk(file.path());
    cache.write(&tokens(0..100), 0, &[], vec![1]);
    assert!(cache.find(wanted(&tokens(0..200))).is_none());
}
