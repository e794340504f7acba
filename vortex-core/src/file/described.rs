//! The description of a file as it was read, which may have to be verified.

use std::sync::Arc;

use arrow::buffer::Buffer;

use super::description::{DescriptionBytes, DescriptionParts, EOF_LEN, LONGEST_END};
use super::footer::Footer;
use super::open::{OpenOptions, tail_size};
use crate::io::{READ_ALIGNMENT, ReadAt};
use crate::segments::checksums::{CHECKSUMS_KEY, Checksums, checksum_of};
use crate::{Error, Result, VortexFile};

/// A parsed footer, with the bytes that it was parsed from.
pub(crate) struct Described {
    footer: Footer,
    parts: DescriptionParts,
    bytes: DescriptionBytes,
}

impl Described {
    /// Reads the description of a file, and its checksums if it is to be verified.
    ///
    /// # Errors
    /// If storage fails, or the bytes are not a Vortex file this build can read.
    pub(crate) async fn read(source: &Arc<dyn ReadAt>, options: &OpenOptions) -> Result<Self> {
        let scheduler = options.scheduler();
        let file_size = match options.file_size {
            Some(size) => size,
            None => source.len().await?,
        };
        if file_size < EOF_LEN {
            return Err(Error::corrupt(format!("{file_size} bytes are too few for a Vortex file")));
        }
        let wanted = options.tail_size.unwrap_or_else(|| tail_size(file_size, &source.profile()));
        let wanted = wanted.max(LONGEST_END);
        let start = file_size.saturating_sub(wanted) / READ_ALIGNMENT * READ_ALIGNMENT;
        let end = scheduler.read_description(source, start..file_size).await?;
        let mut bytes = DescriptionBytes::new(end, file_size);
        let parts = DescriptionParts::parse(&bytes.end, file_size, &options.limits)?;
        bytes.read(source, parts.needed(options.checksums)?, &scheduler).await?;
        Self::parse(parts, bytes, options)
    }

    /// The description of a file of `file_size` bytes, which ends in `tail`.
    ///
    /// # Errors
    /// If it cannot be parsed.
    pub(super) fn of(tail: Buffer, file_size: u64, options: &OpenOptions) -> Result<Self> {
        let bytes = DescriptionBytes::new(tail, file_size);
        let parts = DescriptionParts::parse(&bytes.end, file_size, &options.limits)?;
        Self::parse(parts, bytes, options)
    }

    fn parse(parts: DescriptionParts, bytes: DescriptionBytes, options: &OpenOptions) -> Result<Self> {
        let footer = Footer::parse(&parts, &bytes, options)?;
        Ok(Self { footer, parts, bytes })
    }

    /// The checksums of the file, if there are any.
    ///
    /// # Errors
    /// If they were not read, or do not fit the file.
    pub(crate) fn checksums(&self) -> Result<Option<Checksums>> {
        let Some(entry) = self.footer.entry(CHECKSUMS_KEY) else { return Ok(None) };
        let stored = self.bytes.get(&entry.range);
        let stored = stored.ok_or_else(|| Error::corrupt("the checksums of the file are truncated"))?;
        let others = self.footer.user_metadata().len() - 1;
        Checksums::parse(stored, self.footer.segments().len(), others).map(Some)
    }

    /// Verifies the description against its checksum.
    ///
    /// # Errors
    /// If it is another one.
    pub(crate) fn check(&self, checksums: &Checksums) -> Result<()> {
        let mut parts = Vec::new();
        for (_, part) in self.parts.named_parts() {
            // The description was parsed already, so all parts were read.
            parts.push(self.bytes.get(&self.parts.range(part)?).unwrap_or_default());
        }
        let found = checksum_of(parts);
        if found != checksums.description {
            return Err(Error::corrupt(format!(
                "the description of the file has checksum {found:016x}, was written with {:016x}",
                checksums.description
            )));
        }
        Ok(())
    }

    /// The footer. If it is to be verified, it was, and what is read of the file will be.
    ///
    /// # Errors
    /// If it is to be verified, and differs from its checksum.
    pub(super) fn into_footer(mut self, options: &OpenOptions) -> Result<Footer> {
        if options.checksums {
            let checksums = self.checksums()?;
            checksums.iter().try_for_each(|checksums| self.check(checksums))?;
            self.footer.table.checksums = checksums;
        }
        Ok(self.footer)
    }

    /// The file, of which nothing that is read is verified.
    pub(crate) fn into_file(self, source: &Arc<dyn ReadAt>) -> VortexFile {
        VortexFile::from_footer(Arc::clone(source), Arc::new(self.footer))
    }
}
