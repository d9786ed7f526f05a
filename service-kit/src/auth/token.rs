//! The token in the data directory: made once, read by everybody who may read the directory's owner-only files.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use uuid::Uuid;

use crate::config::Secret;

const FILE: &str = "token";

/// Why the token is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("failed to read `{path}`")]
    Read { path: PathBuf, source: io::Error },
    #[error("failed to create `{path}`")]
    Create { path: PathBuf, source: io::Error },
    #[error("`{path}` is empty")]
    Empty { path: PathBuf },
}

/// Reads the token of a data directory.
///
/// # Errors
///
/// Fails where the file is missing, unreadable or empty.
pub fn read(data: &Path) -> Result<Secret, TokenError> {
    let path = data.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) if text.trim().is_empty() => Err(TokenError::Empty { path }),
        Ok(text) => Ok(Secret::new(text.trim())),
        Err(source) => Err(TokenError::Read { path, source }),
    }
}

/// Makes sure that there is a token, so that it can be read as soon as a service says where it listens.
///
/// # Errors
///
/// Fails where it can be neither read nor written.
pub fn ensure(data: &Path) -> Result<(), TokenError> {
    read_or_create(data).map(drop)
}

/// Reads the token, or makes one. Two services that start at the same time on one directory get the same.
pub(super) fn read_or_create(data: &Path) -> Result<Secret, TokenError> {
    match read(data) {
        Err(TokenError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    create(data).map_err(|source| TokenError::Create { path: data.join(FILE), source })?;
    read(data)
}

/// Writes beside the place and links it in, so that nobody ever reads half a token.
fn create(data: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(data)?;
    let temporary = data.join(format!(".{FILE}-{}", Uuid::now_v7().simple()));
    let written =
        write_new(&temporary, &generate()).and_then(|()| fs::hard_link(&temporary, data.join(FILE)));
    fs::remove_file(&temporary)?;
    match written {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn write_new(path: &Path, token: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{token}")?;
    file.sync_all()
}

/// 256 random bits.
fn generate() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_is_for_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("var");

        let first = read_or_create(&data).unwrap();
        let second = read_or_create(&data).unwrap();

        assert_eq!(first.expose(), second.expose());
        assert!(first.expose().len() >= 40);
        assert_eq!(fs::metadata(data.join(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&data).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn services_that_start_together_agree_on_a_token() {
        let directory = tempfile::tempdir().unwrap();

        let tokens: Vec<String> = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| read_or_create(directory.path()).unwrap().expose().to_owned()))
                .collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });

        assert!(tokens.windows(2).all(|pair| pair[0] == pair[1]), "{tokens:?}");
    }

    #[test]
    fn an_empty_token_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(FILE), "\n").unwrap();

        assert!(matches!(read_or_create(directory.path()), Err(TokenError::Empty { .. })));
    }
}
