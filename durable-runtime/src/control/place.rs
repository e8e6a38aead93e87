//! Where the socket is.

use std::path::Path;
#[cfg(unix)]
use std::{
    fs::{self, DirBuilder, File},
    io,
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, MetadataExt, PermissionsExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::PathBuf,
};

/// The socket's name in the store's directory.
pub const SOCKET: &str = "control.sock";
/// What a directory that the socket is made in is named by, with the process id behind it.
#[cfg(unix)]
const NURSERY: &str = ".control-";
/// The longest path that fits into a socket's address on every Unix, without the byte that ends it.
#[cfg(unix)]
const ADDRESS_BYTES_MAX: usize = 103;

/// Connects to the process that holds the store in this directory.
///
/// # Errors
///
/// There is no socket, or nobody listens on it; what the system says.
#[cfg(unix)]
pub fn connect(store: &Path) -> io::Result<UnixStream> {
    let directory = File::open(store)?;
    UnixStream::connect(address(store, &directory, SOCKET))
}

/// A path of a file in a directory that is short enough for a socket's address: by the directory's descriptor if need be.
#[cfg(unix)]
fn address(directory: &Path, open: &File, name: &str) -> PathBuf {
    let path = directory.join(name);
    let short = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    match path.as_os_str().as_bytes().len() > ADDRESS_BYTES_MAX && short.is_dir() {
        true => short.join(name),
        false => path,
    }
}

/// A socket that listens in a store's directory.
#[cfg(unix)]
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) listener: UnixListener,
    /// Whose it is.
    pub(super) owner: u32,
    path: PathBuf,
    inode: u64,
}

/// Makes the socket, in place of one that a dead process has left: the caller has the store open, so nobody else listens.
///
/// It is made in a directory that only its owner can enter, and moved out of it once only its owner can use it. A crash leaves that
/// directory, which the next call removes, or a socket on which nobody listens.
#[cfg(unix)]
pub(super) fn bind(store: &Path) -> io::Result<Bound> {
    clear(store)?;
    let nursery = store.join(format!("{NURSERY}{}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&nursery)?;
    let bound = bind_in(&nursery, store);
    let _ = fs::remove_file(nursery.join(SOCKET));
    let _ = fs::remove_dir(&nursery);
    bound
}

#[cfg(unix)]
fn bind_in(nursery: &Path, store: &Path) -> io::Result<Bound> {
    let directory = File::open(nursery)?;
    let listener = UnixListener::bind(address(nursery, &directory, SOCKET))?;
    let (made, path) = (nursery.join(SOCKET), store.join(SOCKET));
    fs::set_permissions(&made, fs::Permissions::from_mode(0o600))?;
    let about = fs::symlink_metadata(&made)?;
    fs::rename(&made, &path)?;
    Ok(Bound { listener, owner: about.uid(), path, inode: about.ino() })
}

/// Removes what processes that died while they made a socket have left.
#[cfg(unix)]
fn clear(store: &Path) -> io::Result<()> {
    for entry in fs::read_dir(store)? {
        let entry = entry?;
        if entry.file_name().as_bytes().starts_with(NURSERY.as_bytes()) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(unix)]
impl Drop for Bound {
    /// Removes the socket, unless another one is in its place.
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|there| there.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(all(test, unix))]
#[expect(clippy::unwrap_used, reason = "a test whose directory fails fails")]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::fs::FileTypeExt,
    };

    use super::*;

    struct Store(PathBuf);

    impl Store {
        fn new(name: &str) -> Store {
            let store = std::env::temp_dir().join(format!("durable-place-{}-{name}", std::process::id()));
            fs::create_dir_all(&store).unwrap();
            Store(store)
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<String> =
                fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Store {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn talks(store: &Path, bound: &Bound) {
        let mut client = connect(store).unwrap();
        client.write_all(b"hello").unwrap();
        drop(client);
        let mut heard = String::new();
        bound.listener.accept().unwrap().0.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "hello");
    }

    #[test]
    fn a_socket_is_its_owners_alone_and_goes_with_its_holder() {
        let store = Store::new("owner");
        let bound = bind(&store.0).unwrap();
        let about = fs::symlink_metadata(store.0.join(SOCKET)).unwrap();
        assert!(about.file_type().is_socket());
        assert_eq!((about.mode() & 0o7777, about.uid()), (0o600, bound.owner));
        assert_eq!(store.names(), [SOCKET]);
        talks(&store.0, &bound);
        drop(bound);
        assert_eq!(store.names(), [""; 0]);
        assert_eq!(connect(&store.0).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_the_dead_have_left_is_replaced_and_not_missed_by_them() {
        let store = Store::new("dead");
        let dead = bind(&store.0).unwrap();
        fs::create_dir(store.0.join(format!("{NURSERY}1"))).unwrap();
        fs::write(store.0.join(format!("{NURSERY}1")).join(SOCKET), "").unwrap();
        let bound = bind(&store.0).unwrap();
        drop(dead);
        assert_eq!(store.names(), [SOCKET], "its late end takes nothing from its successor");
        talks(&store.0, &bound);
    }

    #[test]
    fn a_path_may_be_longer_than_a_sockets_address() {
        let store = Store::new("long");
        let deep = store.0.join("x".repeat(200));
        fs::create_dir(&deep).unwrap();
        let bound = bind(&deep).unwrap();
        talks(&deep, &bound);
        drop(bound);
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 0);
    }
}
