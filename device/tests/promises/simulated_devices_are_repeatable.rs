//! Promise: the seed determines a simulation; a crash keeps flushed bytes and may lose others;
//! faults have the configured rates.

use crate::support::{pool, wait_for_one};
use rackscan_device::sim::{CrashImage, FaultRates, SimConfig, SimDisk, SimIo};
use rackscan_device::{BufferPool, Completion, DeviceIndex, DeviceIo, Fsync, Read, Token, Wait, Write};

const DEVICE_BYTES: u32 = 1 << 20;

fn simulation(config: SimConfig) -> (SimIo, BufferPool) {
    (SimIo::new(config, vec![SimDisk::zeroed(DEVICE_BYTES as usize)]), pool())
}

fn write(pool: &BufferPool, page: u64, mark: u8) -> Write {
    let mut buffer = pool.take(4096).expect("the pool is large enough");
    buffer.fill(mark);
    Write {
        device: DeviceIndex(0),
        offset_bytes: page * 4096,
        length_bytes: 4096,
        from: buffer.into(),
        token: Token(page),
    }
}

fn read(pool: &BufferPool, page: u64) -> Read {
    let into = pool.take(4096).expect("the pool is large enough").into();
    Read { device: DeviceIndex(0), offset_bytes: page * 4096, length_bytes: 4096, into, token: Token(page) }
}

/// The order in which 32 reads end.
fn order(seed: u64) -> Vec<Token> {
    let (mut sim, pool) = simulation(SimConfig::seeded(seed));
    for page in 0..32 {
        sim.submit_read(read(&pool, page)).expect("there is room");
    }
    let mut tokens = Vec::new();
    while sim.in_flight() > 0 {
        sim.reap(Wait::Now, &mut |completion| tokens.push(completion.token())).expect("polling works");
    }
    tokens
}

#[test]
fn the_same_seed_gives_the_same_order_and_another_seed_another() {
    assert_eq!(order(7), order(7));
    assert_ne!(order(7), order(8));
    let mut sorted = order(7);
    assert!(!sorted.is_sorted(), "requests should overtake each other");
    sorted.sort();
    assert_eq!(sorted, (0..32).map(Token).collect::<Vec<_>>(), "each request ends exactly once");
}

#[test]
fn a_crash_keeps_flushed_writes_and_loses_the_others() {
    let page = |disk: &SimDisk, page: usize| disk.contents()[page * 4096..(page + 1) * 4096].to_vec();
    // Over many seeds the second write ends both before and after the flush that was submitted
    // before it.
    for seed in 0..32 {
        let (mut sim, pool) = simulation(SimConfig::seeded(seed));
        sim.submit_write(write(&pool, 0, 0x11)).unwrap();
        wait_for_one(&mut sim);
        sim.submit_fsync(Fsync { device: DeviceIndex(0), token: Token(1) }).unwrap();
        sim.submit_write(write(&pool, 1, 0x22)).unwrap();
        while sim.in_flight() > 0 {
            wait_for_one(&mut sim);
        }
        sim.submit_write(write(&pool, 2, 0x33)).unwrap();
        assert_eq!(page(&sim.disks()[0], 1), vec![0x22; 4096], "seed {seed}: visible before the crash");
        let after = sim.crash(CrashImage::OnlySynced).remove(0);
        assert_eq!(page(&after, 0), vec![0x11; 4096], "seed {seed}: flushed");
        assert_eq!(page(&after, 1), vec![0; 4096], "seed {seed}: in flight when the flush was submitted");
        assert_eq!(page(&after, 2), vec![0; 4096], "seed {seed}: never flushed");
        assert_eq!(pool.free_bytes(), pool.total_bytes());
    }
}

#[test]
fn a_torn_crash_keeps_whole_sectors_of_unflushed_writes() {
    let seed = 11;
    let (mut sim, pool) = simulation(SimConfig::seeded(seed));
    for page in 0..16 {
        sim.submit_write(write(&pool, page, 0x44)).unwrap();
    }
    while sim.in_flight() > 0 {
        wait_for_one(&mut sim);
    }
    let after = sim.crash(CrashImage::AnySectors).remove(0);
    let sectors: Vec<&[u8]> = after.contents()[..16 * 4096].chunks(512).collect();
    let whole = |mark: u8| sectors.iter().filter(|sector| sector.iter().all(|byte| *byte == mark)).count();
    assert_eq!(whole(0x44) + whole(0), sectors.len(), "seed {seed}: a sector is torn inside");
    assert!(
        whole(0x44) > 0 && whole(0) > 0,
        "seed {seed}: {} sectors of {} kept",
        whole(0x44),
        sectors.len()
    );
}

#[test]
fn faults_are_injected_as_often_as_asked_and_a_failed_write_changes_at_most_a_prefix() {
    let faults = FaultRates { read_error: 500_000, torn_write: 500_000, ..FaultRates::default() };
    let seed = 5;
    let (mut sim, pool) = simulation(SimConfig { faults, ..SimConfig::seeded(seed) });
    let (mut torn, mut failed_reads) = (0, 0);
    for page in 0..100 {
        sim.submit_write(write(&pool, page, 0x55)).unwrap();
        sim.reap(Wait::ForOne, &mut |completion| {
            let Completion::Write { outcome, .. } = completion else { panic!("a write was expected") };
            torn += usize::from(outcome.is_err());
        })
        .unwrap();
        let start = usize::try_from(page * 4096).unwrap();
        let written = &sim.disks()[0].contents()[start..start + 4096];
        let prefix = written.iter().take_while(|byte| **byte == 0x55).count();
        assert!(written[prefix..].iter().all(|byte| *byte == 0), "seed {seed}: more than a prefix");
        sim.submit_read(read(&pool, page)).unwrap();
        sim.reap(Wait::ForOne, &mut |completion| {
            let Completion::Read { outcome, .. } = completion else { panic!("a read was expected") };
            failed_reads += usize::from(outcome.is_err());
        })
        .unwrap();
    }
    assert!((30..70).contains(&torn), "seed {seed}: {torn} of 100 writes torn");
    assert!((30..70).contains(&failed_reads), "seed {seed}: {failed_reads} of 100 reads failed");
}

#[test]
fn a_misdirected_read_succeeds_with_bytes_of_another_place() {
    let faults = FaultRates { misdirected_read: 1_000_000, ..FaultRates::default() };
    let contents: Vec<u8> = (0..DEVICE_BYTES / 4).flat_map(|word| word.to_le_bytes()).collect();
    let mut sim =
        SimIo::new(SimConfig { faults, ..SimConfig::seeded(2) }, vec![SimDisk::of(contents.clone())]);
    let pool = pool();
    let mut elsewhere = 0;
    for page in 0..50 {
        sim.submit_read(read(&pool, page)).unwrap();
        let buffer = wait_for_one(&mut sim).unwrap().into_buffer().unwrap();
        assert!(contents.chunks(512).any(|sector| sector == &buffer[..512]), "bytes of nowhere");
        let start = usize::try_from(page * 4096).unwrap();
        elsewhere += usize::from(buffer[..] != contents[start..start + 4096]);
    }
    assert!(elsewhere > 40, "only {elsewhere} of 50 reads went astray");
}
