//! Compresses files, each part of a file with a checksum.

use std::io::Write;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
    Bzip2,
    Xz,
}

impl Compression {
    pub(super) const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Zstd, Self::Bzip2, Self::Xz];

    /// Of these bytes, with a checksum.
    pub(super) fn member(self, bytes: &[u8]) -> Vec<u8> {
        let written: std::io::Result<Vec<u8>> = match self {
            Self::None => Ok(bytes.to_vec()),
            Self::Gzip => {
                let mut member = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                member.write_all(bytes).and_then(|()| member.finish())
            }
            Self::Zstd => zstd::Encoder::new(Vec::new(), 1).and_then(|mut member| {
                member.include_checksum(true)?;
                member.write_all(bytes)?;
                member.finish()
            }),
            Self::Bzip2 => {
                let mut member = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::default());
                member.write_all(bytes).and_then(|()| member.finish())
            }
            Self::Xz => {
                let mut member = liblzma::write::XzEncoder::new(Vec::new(), 1);
                member.write_all(bytes).and_then(|()| member.finish())
            }
        };
        written.expect("memory to write to")
    }
}
