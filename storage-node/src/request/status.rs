//! Reports the identity, load and counters of this node.

use rackscan_format::message::{Answer, NodeStatus, Refusal};

use super::answered;
use crate::{bridge::Core, relay::Relay, task::Work};

/// Begins to serve the request.
#[expect(clippy::unnecessary_wraps, reason = "every kind of request begins alike")]
pub(crate) fn start(core: &Core) -> Result<Box<dyn Work>, Refusal> {
    let node = &core.node;
    let status = NodeStatus {
        node: node.config.node,
        cluster: node.config.cluster.0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: node.host.clone(),
        process_id: std::process::id(),
        uptime_s: node.started.elapsed().as_secs(),
        devices: node.store.device_statuses(),
        reactors: node.config.pollers(),
        bridge: node.config.bridge_status(),
        scan_workers: node.config.scan_workers,
        memory_budget_bytes: node.plan.budget_bytes,
        registered_buffers: node.registered_buffers.get().cloned().unwrap_or(Ok(())),
        counters: node.metrics.counters(),
        participant: node
            .participant
            .as_ref()
            .map(|participant| participant.gauges.status())
            .unwrap_or_default(),
        participant_refuses: node.participant.as_ref().and_then(|participant| participant.refusal()),
        relays: node.relays.iter().map(Relay::status).collect(),
        identity: node.identity.told(),
        cache: node.cache.as_ref().map(|cache| cache.pages().status()).unwrap_or_default(),
    };
    Ok(answered(Answer::Status(Box::new(status))))
}
