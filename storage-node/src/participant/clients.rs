//! Records which connection each client of transactions uses.
//!
//! A client that vanishes leaves leases, locks and transactions in doubt. A client counts as gone
//! when its connection is closed. Its connection is the one over which it took its last lease, or,
//! if it took none, the one over which it first locked or prepared something.
//!
//! Invariants
//! - A client belongs to one connection at a time. A connection has at most
//!   `CLIENTS_PER_CONNECTION_MAX` clients.

use std::collections::HashMap;

use rackscan_ramp::timestamp::ClientId;

use crate::{ids::ConnectionId, limits::CLIENTS_PER_CONNECTION_MAX};

/// Clients and their connections.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    over: HashMap<ClientId, ConnectionId>,
    of: HashMap<ConnectionId, Vec<ClientId>>,
}

impl Clients {
    /// Records that a client takes a lease over this connection, to which it belongs from now on.
    /// False if the connection has too many clients.
    pub(crate) fn leases(&mut self, client: ClientId, connection: ConnectionId) -> bool {
        if self.over.get(&client) == Some(&connection) {
            return true;
        }
        let clients = self.of.entry(connection).or_default();
        if clients.len() >= CLIENTS_PER_CONNECTION_MAX {
            return false;
        }
        clients.push(client);
        if let Some(before) = self.over.insert(client, connection)
            && let Some(clients) = self.of.get_mut(&before)
        {
            clients.retain(|other| *other != client);
        }
        true
    }

    /// Records that a client locks or prepares something over this connection. The client belongs
    /// to it if it belongs to none.
    pub(crate) fn acts(&mut self, client: ClientId, connection: ConnectionId) {
        if !self.over.contains_key(&client) {
            self.leases(client, connection);
        }
    }

    /// Forgets a closed connection. Returns its clients.
    pub(crate) fn ended(&mut self, connection: ConnectionId) -> Vec<ClientId> {
        let clients = self.of.remove(&connection).unwrap_or_default();
        for client in &clients {
            self.over.remove(client);
        }
        clients
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    #[test]
    fn a_client_goes_with_the_connection_of_its_last_lease() {
        let mut clients = Clients::default();
        assert!(clients.leases(ClientId(1), A));
        clients.acts(ClientId(1), B);
        clients.acts(ClientId(2), B);
        assert_eq!(clients.ended(B), [ClientId(2)]);
        assert!(clients.leases(ClientId(1), B));
        assert_eq!(clients.ended(A), []);
        assert_eq!(clients.ended(B), [ClientId(1)]);
        assert_eq!(clients.ended(B), []);
    }

    #[test]
    fn a_connection_has_few_clients() {
        let mut clients = Clients::default();
        let most = u32::try_from(CLIENTS_PER_CONNECTION_MAX).unwrap();
        assert!((0..most).all(|client| clients.leases(ClientId(client), A)));
        assert!(!clients.leases(ClientId(most), A));
        assert!(clients.leases(ClientId(0), A), "known already");
        assert_eq!(clients.ended(A).len(), CLIENTS_PER_CONNECTION_MAX);
    }
}
