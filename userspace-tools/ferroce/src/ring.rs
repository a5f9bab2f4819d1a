// SPDX-License-Identifier: GPL-2.0

//! The two ends of a ring: one writes entries, the kernel takes them, or the
//! other way round. Each end trusts its own index and reads the other's.

use crate::sys::RingMemory;
use bytemuck::Pod;
use std::sync::atomic::Ordering;

/// The writing end of a send or receive queue.
#[derive(Debug)]
pub(crate) struct Producer {
    ring: RingMemory,
    next: u32,
}

impl Producer {
    pub(crate) fn new(ring: RingMemory) -> Self {
        let next = ring.producer().load(Ordering::Relaxed) & ring.index_mask();
        Producer { ring, next }
    }

    /// Appends an entry; false if the ring is full.
    #[must_use]
    pub(crate) fn push(&mut self, entry: &[u8]) -> bool {
        let after = (self.next + 1) & self.ring.index_mask();
        // Pairs with the kernel's release: it has read the entry it frees.
        if after == self.ring.consumer().load(Ordering::Acquire) & self.ring.index_mask() {
            return false;
        }
        self.ring.write(self.next, entry);
        self.ring.producer().store(after, Ordering::Release);
        self.next = after;
        true
    }
}

/// The reading end of a completion queue.
#[derive(Debug)]
pub(crate) struct Consumer {
    ring: RingMemory,
    next: u32,
}

impl Consumer {
    pub(crate) fn new(ring: RingMemory) -> Self {
        let next = ring.consumer().load(Ordering::Relaxed) & ring.index_mask();
        Consumer { ring, next }
    }

    /// Takes the oldest entry.
    pub(crate) fn pop<T: Pod>(&mut self) -> Option<T> {
        // Pairs with the kernel's release: the entry is written before the index.
        if self.next == self.ring.producer().load(Ordering::Acquire) & self.ring.index_mask() {
            return None;
        }
        let entry = self.ring.read(self.next);
        self.next = (self.next + 1) & self.ring.index_mask();
        self.ring.consumer().store(self.next, Ordering::Release);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi;
    use crate::sys::Memory;
    use bytemuck::Zeroable;

    fn ring(log2_elem_size: u32, index_mask: u32, len: usize) -> std::io::Result<RingMemory> {
        let memory = Memory::anonymous(len)?;
        let mut head = abi::Ring::zeroed();
        head.log2_elem_size = log2_elem_size;
        head.index_mask = index_mask;
        memory.write(0, bytemuck::bytes_of(&head));
        RingMemory::new(memory, 8)
    }

    #[test]
    fn a_ring_of_four_holds_three() {
        let mut ring = Producer::new(ring(4, 3, 4096).unwrap());
        assert_eq!(
            [true, true, true, false],
            [1u64, 2, 3, 4].map(|n| ring.push(&n.to_ne_bytes()))
        );
        ring.ring.consumer().store(1, Ordering::Release);
        assert!(ring.push(&5u64.to_ne_bytes()));
        assert!(!ring.push(&6u64.to_ne_bytes()));
        assert_eq!(ring.ring.read::<u64>(1), 2);
        assert_eq!(ring.ring.read::<u64>(3), 5);
        assert_eq!(ring.ring.producer().load(Ordering::Acquire), 0);
    }

    #[test]
    fn entries_come_out_in_order_round_the_end() {
        let mut ring = Consumer::new(ring(3, 3, 4096).unwrap());
        for n in 0..10u32 {
            assert_eq!(ring.pop::<u64>(), None);
            ring.ring.write(n & 3, &u64::from(n).to_ne_bytes());
            ring.ring.producer().store((n + 1) & 3, Ordering::Release);
            assert_eq!(ring.pop::<u64>(), Some(n.into()));
        }
    }

    #[test]
    fn a_wild_index_stays_inside() {
        let mut producer = Producer::new(ring(4, 3, 4096).unwrap());
        producer.ring.consumer().store(u32::MAX, Ordering::Release);
        assert!(producer.push(&[1; 16]));
        assert!(producer.push(&[1; 16]));
        assert!(!producer.push(&[1; 16]), "the masked index is 3");
    }

    #[test]
    fn headers_that_do_not_fit_are_refused() {
        assert!(ring(4, 2, 4096).is_err(), "three entries");
        assert!(ring(2, 3, 4096).is_err(), "entries too small");
        assert!(ring(6, 63, 4096).is_err(), "longer than the mapping");
        assert!(ring(40, 3, 4096).is_err());
        assert!(ring(31, u32::MAX, 4096).is_err());
    }
}
