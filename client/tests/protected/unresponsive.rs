//! Tests clusters with nodes that accept connections and do not answer, or answer far later than
//! others: such a node is behind a proxy that delays its messages.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::future::join_all;
use rackscan_client::{Cluster, ClusterOptions, ClusterTable, LoadSession};
use rackscan_fabric::Address;
use rackscan_format::schema::Protection;

use crate::support::{PATIENCE, Rack, definition, id, is_read, load, said, table, wanted};

/// Much less than requests may take, and much more than noticing takes.
const NOTICED_TIME_MAX: Duration = Duration::from_secs(30);

/// A way to a node that can be held up.
struct Proxy {
    address: Address,
    way: Arc<Way>,
}

#[derive(Default)]
struct Way {
    /// Nothing passes.
    is_blocked: AtomicBool,
    /// What the node says comes so much later.
    late_ms: AtomicU64,
    is_over: AtomicBool,
}

impl Way {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Passes on what comes, until either end is gone.
    fn pass(&self, mut from: TcpStream, mut to: TcpStream, is_from_node: bool) {
        from.set_read_timeout(Some(Duration::from_millis(20))).expect("a socket");
        let mut bytes = vec![0; 64 << 10];
        while !self.is_over() {
            if self.is_blocked.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            let count = match from.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(_) => break,
            };
            while self.is_blocked.load(Ordering::SeqCst) && !self.is_over() {
                std::thread::sleep(Duration::from_millis(5));
            }
            if is_from_node {
                std::thread::sleep(Duration::from_millis(self.late_ms.load(Ordering::SeqCst)));
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // The other direction ends, too.
        let _ = from.shutdown(std::net::Shutdown::Both);
        let _ = to.shutdown(std::net::Shutdown::Both);
    }
}

impl Proxy {
    fn to(node: &Address) -> Self {
        let Address::Tcp { host, port } = node.clone() else { panic!("{node} is not of tcp") };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let here = listener.local_addr().expect("it is bound").port();
        let way = Arc::new(Way::default());
        let of_threads = Arc::clone(&way);
        std::thread::spawn(move || {
            for caller in listener.incoming().map_while(Result::ok) {
                if of_threads.is_over() {
                    break;
                }
                let Ok(called) = TcpStream::connect((host.as_str(), port)) else { continue };
                for (from, to, is_from_node) in [(&caller, &called, false), (&called, &caller, true)] {
                    let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    let way = Arc::clone(&of_threads);
                    std::thread::spawn(move || way.pass(from, to, is_from_node));
                }
            }
        });
        Self { address: Address::Tcp { host: "127.0.0.1".to_owned(), port: here }, way }
    }

    fn block(&self, is_blocked: bool) {
        self.way.is_blocked.store(is_blocked, Ordering::SeqCst);
    }

    fn be_late(&self, late: Duration) {
        self.way.late_ms.store(u64::try_from(late.as_millis()).expect("short"), Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.way.is_over.store(true, Ordering::SeqCst);
        let Address::Tcp { host, port } = &self.address else { return };
        // The listening thread looks when somebody calls.
        drop(TcpStream::connect((host.as_str(), *port)));
    }
}

/// Four nodes with a table, those of these positions behind proxies.
async fn behind_proxies(nodes: &[usize]) -> (Rack, Vec<Proxy>, ClusterOptions) {
    let rack = Rack::new(4);
    let cluster = rack.connect(0).await.expect("all nodes are there");
    load(&cluster, definition(7, &rack.ids(), Some(Protection::TwoD)), &[2, 3, 2, 3]).await;
    let mut options = rack.options();
    (options.unavailable_max, options.reads_caches) = (2, false);
    let mut proxies = Vec::new();
    for node in nodes {
        let proxy = Proxy::to(&rack.tcp(*node));
        options.nodes[*node].addresses = vec![proxy.address.clone()];
        proxies.push(proxy);
    }
    (rack, proxies, options)
}

/// Reads until no page had to be reconstructed.
async fn are_used_again(cluster: &Cluster, table: &ClusterTable) {
    let deadline = Instant::now() + PATIENCE;
    while is_read(cluster, table).await != (0, 0) {
        assert!(Instant::now() < deadline, "nodes that answer again are not used");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_nodes_that_fall_silent_come_from_others_until_they_speak_again() {
    let (_rack, proxies, options) = behind_proxies(&[1, 3]).await;
    let cluster = Cluster::connect(options).await.expect("all nodes are there");
    let before = table(&cluster, 7).await;
    assert_eq!((is_read(&cluster, &before).await, cluster.unavailable()), ((0, 0), vec![]));
    for (silent, proxy) in proxies.iter().enumerate() {
        proxy.block(true);
        let begun = Instant::now();
        assert!(is_read(&cluster, &before).await.0 > 0);
        println!("{} silent: noticed and read in {:.2?}", silent + 1, begun.elapsed());
        assert!(begun.elapsed() < NOTICED_TIME_MAX);
        assert!(said(&table(&cluster, 7).await) == said(&before));
    }
    assert_eq!(cluster.unavailable(), [id(1), id(3)]);
    assert!(cluster.unresponsive_for(id(1)).is_some() && cluster.unresponsive_for(id(0)).is_none());
    let begun = Instant::now();
    assert!(is_read(&cluster, &before).await.0 > 0);
    println!("known to be silent: read in {:.2?}", begun.elapsed());
    proxies.iter().for_each(|proxy| proxy.block(false));
    are_used_again(&cluster, &before).await;
    assert_eq!(cluster.unavailable(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_do_not_answer_who_connects_are_done_without_and_used_when_they_do() {
    let (rack, proxies, options) = behind_proxies(&[0, 2]).await;
    let healthy = rack.connect(0).await.expect("all nodes are there");
    let before = table(&healthy, 7).await;
    proxies.iter().for_each(|proxy| proxy.block(true));
    let begun = Instant::now();
    let cluster = Cluster::connect(options.clone()).await.expect("two of four may be unavailable");
    println!("connected in {:.2?}", begun.elapsed());
    assert!(begun.elapsed() < NOTICED_TIME_MAX);
    assert_eq!(cluster.unavailable(), [id(0), id(2)]);
    assert!(said(&table(&cluster, 7).await) == said(&before));
    assert!(is_read(&cluster, &before).await.0 > 0);
    // Nothing is loaded without them, and that is said.
    let begun = LoadSession::begin(&cluster, definition(8, &rack.ids(), None)).await;
    assert!(begun.unwrap_err().to_string().contains("unresponsive for"));
    let one_unavailable = ClusterOptions { unavailable_max: 1, ..options };
    let error = Cluster::connect(one_unavailable).await.unwrap_err();
    assert!(error.is_unresponsive(), "{error}");
    proxies.iter().for_each(|proxy| proxy.block(false));
    are_used_again(&cluster, &before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_needs_a_silent_node_hears_for_how_long_it_has_been_and_may_ask_again_when_it_speaks() {
    let (_rack, proxies, mut options) = behind_proxies(&[1]).await;
    options.unavailable_max = 0;
    let cluster = Cluster::connect(options).await.expect("all nodes are there");
    let before = table(&cluster, 7).await;
    proxies[0].block(true);
    let begun = Instant::now();
    let error = cluster.status(id(1)).await.unwrap_err();
    println!("refused in {:.2?}", begun.elapsed());
    assert!(error.is_unresponsive() && begun.elapsed() < NOTICED_TIME_MAX, "{error}");
    let text = error.to_string();
    assert!(text.starts_with("node 2 has been unresponsive for 1"), "{text}");
    proxies[0].block(false);
    let deadline = Instant::now() + PATIENCE;
    while cluster.status(id(1)).await.is_err() {
        assert!(Instant::now() < deadline, "it answers, and is not heard");
    }
    assert_eq!(is_read(&cluster, &before).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_a_node_that_is_far_slower_than_others_come_from_those_and_are_right() {
    let (_rack, proxies, options) = behind_proxies(&[2]).await;
    let cluster = Cluster::connect(options).await.expect("all nodes are there");
    let before = table(&cluster, 7).await;
    proxies[0].be_late(Duration::from_secs(2));
    let deadline = Instant::now() + PATIENCE;
    let mut reconstructed = 0;
    while reconstructed == 0 {
        assert!(Instant::now() < deadline, "nobody has noticed that a node is slow");
        // Of all nodes at the same time, as a query does: there is something to compare with.
        let read = before.segments.iter().cycle().take(4 * before.segments.len()).map(|placed| {
            let wanted = wanted(placed);
            let cluster = &cluster;
            async move {
                let (written, number) = (placed.directory.table, placed.directory.segment);
                cluster.fetch(placed.node, written, number, &wanted).await.expect("its pages")
            }
        });
        reconstructed = join_all(read).await.iter().map(|fetched| fetched.reconstructed_pages).sum();
    }
    // Its pages are what they were, and it does not count as unavailable.
    is_read(&cluster, &before).await;
    assert_eq!(cluster.unavailable(), []);
    proxies[0].be_late(Duration::ZERO);
    are_used_again(&cluster, &before).await;
}
