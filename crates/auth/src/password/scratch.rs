//! The working memory of argon2: allocated when first needed, reused for the next password, freed as a whole.

use argon2::{Algorithm, Argon2, Block, Params, PasswordHash, Version};
use subtle::ConstantTimeEq as _;

use super::{MEMORY_KIB, PasswordError};

/// The smallest reservation, in bytes; only the pages in use are ever resident.
///
/// glibc maps a large allocation on its own and unmaps it when it is freed. After the first such `free`, however, it
/// serves allocations of that size from its arenas, which keep their memory. Above 32 MiB (512 KiB on 32-bit systems)
/// it always maps: `DEFAULT_MMAP_THRESHOLD_MAX`, mallopt(3).
const RESERVED_BYTES: usize = if cfg!(target_pointer_width = "64") { 33 << 20 } else { 1 << 20 };

/// The longest output of a PHC string, in bytes.
const OUTPUT_BYTES_MAX: usize = 64;

/// Memory for one password verification at a time; see [`Authority::password`](crate::Authority::password).
#[derive(Debug, Default)]
pub struct Scratch {
    blocks: Vec<Block>,
    work: u64,
}

impl Scratch {
    /// Creates it without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { blocks: Vec::new(), work: 0 }
    }

    /// Returns the work of all hashes so far: blocks of 1 KiB computed, each counted once for every pass.
    #[must_use]
    pub const fn work(&self) -> u64 {
        self.work
    }

    /// Computes the hash of a password into `output`.
    pub(super) fn hash(
        &mut self,
        hasher: &Argon2<'_>,
        password: &[u8],
        salt: &[u8],
        output: &mut [u8],
    ) -> Result<(), PasswordError> {
        let params = hasher.params();
        self.work += u64::from(params.m_cost()) * u64::from(params.t_cost());
        let blocks = self.blocks(params.block_count())?;
        let hashed = hasher.hash_password_into_with_memory(password, salt, output, blocks);
        // A hash made elsewhere may have needed far more than ours; that memory is not kept.
        if self.blocks.len() > own_blocks() {
            self.blocks = Vec::new();
        }
        hashed.map_err(|_| PasswordError::Unusable)
    }

    /// Whether a password matches an argon2id hash. Compares in constant time.
    pub(super) fn matches(&mut self, stored: &PasswordHash, password: &[u8]) -> Result<bool, PasswordError> {
        let unusable = |_| PasswordError::Unusable;
        let (Some(salt), Some(expected)) = (&stored.salt, &stored.hash) else { return Err(PasswordError::Unusable) };
        let version = stored.version.map_or(Ok(Version::default()), Version::try_from).map_err(unusable)?;
        let params = Params::try_from(stored).map_err(|_| PasswordError::Unusable)?;
        let mut output = [0; OUTPUT_BYTES_MAX];
        let output = output.get_mut(..expected.len()).ok_or(PasswordError::Unusable)?;
        self.hash(&Argon2::new(Algorithm::Argon2id, version, params), password, salt, output)?;
        Ok(bool::from((*output).ct_eq(expected.as_bytes())))
    }

    fn blocks(&mut self, count: usize) -> Result<&mut [Block], PasswordError> {
        if self.blocks.capacity() < count {
            self.blocks = Vec::new();
            let reserved = count.max(RESERVED_BYTES / Block::SIZE);
            self.blocks.try_reserve_exact(reserved).map_err(|_| PasswordError::NoMemory)?;
        }
        if self.blocks.len() < count {
            self.blocks.resize(count, Block::new());
        }
        self.blocks.get_mut(..count).ok_or(PasswordError::NoMemory)
    }
}

/// The memory blocks of the hashes made here.
const fn own_blocks() -> usize {
    MEMORY_KIB as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::password::StoredPassword;

    #[test]
    fn memory_is_used_again_and_what_a_costly_hash_took_is_freed() {
        let mut scratch = Scratch::new();
        let ours = StoredPassword::hash(b"secret", &mut scratch).unwrap();
        let first = scratch.blocks.as_ptr();
        assert_eq!(scratch.blocks.len(), own_blocks());
        assert!(ours.matches(b"secret", &mut scratch).unwrap() && !ours.matches(b"Secret", &mut scratch).unwrap());
        assert_eq!(scratch.blocks.as_ptr(), first, "the same memory");
        // Twice the memory, one pass, of `secret` under `saltsaltsaltsalt`.
        let params = Params::new(2 * MEMORY_KIB, 1, 1, Some(32)).unwrap();
        let mut output = [0; 32];
        let hasher = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        hasher.hash_password_into(b"secret", b"saltsaltsaltsalt", &mut output).unwrap();
        let mut again = [0; 32];
        scratch.hash(&hasher, b"secret", b"saltsaltsaltsalt", &mut again).unwrap();
        assert_eq!(again, output);
        assert_eq!(scratch.blocks.capacity(), 0, "nothing of it is kept");
        assert!(ours.matches(b"secret", &mut scratch).unwrap());
    }

    #[test]
    fn enough_is_reserved_to_be_mapped_on_its_own() {
        let mut scratch = Scratch::new();
        scratch.blocks(1).unwrap();
        assert!(scratch.blocks.capacity() * Block::SIZE >= RESERVED_BYTES);
        assert_eq!(scratch.blocks.len(), 1, "the rest is never touched");
    }
}
