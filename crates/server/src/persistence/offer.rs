//! Data of Redis that lie beside an empty log: somebody may expect to see them.

use std::path::PathBuf;

use super::snapshot_path;
use crate::config::{DirectiveId, Settings};
use crate::log::Log;

/// Tells the operator of files of Redis in `dir`, and how to import them. Nothing is loaded: whoever
/// starts a server on the wrong directory should not get data that nobody asked for.
pub fn offer_import(settings: &Settings, log: &Log) {
    let Some(found) = find(settings) else { return };
    let dir = settings.dir();
    log.notice(format_args!(
        "{} was found and not loaded. To import it, stop the server and run: tierce import {} \
         --dir {}",
        found.display(),
        found.display(),
        dir.display()
    ));
}

/// What Redis would load: the append-only directory, or else the snapshot.
fn find(settings: &Settings) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    const AOF_DIR: DirectiveId = DirectiveId::of("appenddirname");
    const AOF_NAME: DirectiveId = DirectiveId::of("appendfilename");
    let text = |id| std::ffi::OsStr::from_bytes(settings.text(id));
    let aof_dir = settings.dir().join(text(AOF_DIR));
    let mut manifest = text(AOF_NAME).to_owned();
    manifest.push(".manifest");
    if aof_dir.join(manifest).is_file() {
        return Some(aof_dir);
    }
    Some(snapshot_path(settings)).filter(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    fn settings(dir: &TestDir) -> Settings {
        let line = format!("--dir {}", dir.path().display());
        let args = line.split(' ').map(Into::into);
        match crate::config::parse(args, [], &[]).unwrap() {
            crate::config::Invocation::Serve(sources) => {
                sources.load(&mut std::io::empty()).unwrap().settings
            }
            _ => panic!("a server"),
        }
    }

    #[test]
    fn what_redis_would_load_is_found() {
        let dir = TestDir::new("offer");
        let settings = settings(&dir);
        assert_eq!(find(&settings), None);
        let snapshot = dir.write("dump.rdb", "");
        assert_eq!(find(&settings), Some(snapshot));
        dir.write("appendonlydir/appendonly.aof.manifest", "");
        assert_eq!(find(&settings), Some(dir.path().join("appendonlydir")));
    }
}
