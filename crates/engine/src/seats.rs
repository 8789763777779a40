//! Who is connected to a target: a client has one session there, that of its latest connection.

use crate::session::Session;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use transport::ServerConn;
use types::ClientId;
use types::map::HashMap;

/// The sessions of a target.
pub(crate) struct Seats {
    by_client: RefCell<HashMap<ClientId, Seat>>,
    next_number: Cell<u64>,
}

/// A client's latest connection.
struct Seat {
    number: u64,
    /// The connection from which on the client was never given up: what it holds open is known.
    since: u64,
    session: Rc<Session>,
    /// Until it has ended.
    conn: Option<ServerConn>,
}

impl Seat {
    /// Ends the session: what is unread on its connection stays unread.
    fn end(self) {
        self.session.end();
        if let Some(conn) = self.conn {
            conn.close();
        }
    }
}

impl Default for Seats {
    fn default() -> Seats {
        Seats { by_client: RefCell::default(), next_number: Cell::new(1) }
    }
}

impl Seats {
    /// The number of a connection that a client would have now, and of that from which on it was never given up.
    pub fn next(&self, client: ClientId) -> (u64, u64) {
        let number = self.next_number.get();
        (number, self.by_client.borrow().get(&client).map_or(number, |seat| seat.since))
    }

    /// A client has come with what [`Seats::next`] said, in the same step. Its earlier session ends.
    pub fn take(&self, (number, since): (u64, u64), session: Rc<Session>, conn: ServerConn) {
        self.next_number.set(number + 1);
        let client = session.client;
        let seat = Seat { number, since, session, conn: Some(conn) };
        let earlier = self.by_client.borrow_mut().insert(client, seat);
        if let Some(earlier) = earlier {
            earlier.end();
        }
    }

    /// A connection has ended; the client may come again.
    pub fn leave(&self, client: ClientId, number: u64) {
        if let Some(seat) = self.by_client.borrow_mut().get_mut(&client)
            && seat.number == number
        {
            seat.conn = None;
        }
    }

    /// True when this was the client's latest connection, and it is not given up.
    pub fn is_latest(&self, client: ClientId, number: u64) -> bool {
        self.by_client.borrow().get(&client).is_some_and(|seat| seat.number == number)
    }

    /// Gives a client up: nothing that it has asked for takes effect any more.
    pub fn give_up(&self, client: ClientId) {
        let seat = self.by_client.borrow_mut().remove(&client);
        if let Some(seat) = seat {
            seat.end();
        }
    }

    /// True unless the client was given up, or never came.
    pub fn has(&self, client: ClientId) -> bool {
        self.by_client.borrow().contains_key(&client)
    }

    /// The process of a client on this host.
    pub fn pid_of(&self, client: ClientId) -> Option<u32> {
        self.by_client.borrow().get(&client).and_then(|seat| seat.session.local_pid)
    }

    /// Sessions of those that are connected now.
    pub fn connected(&self) -> Vec<Rc<Session>> {
        let by_client = self.by_client.borrow();
        let seats = by_client.values().filter(|seat| seat.conn.is_some());
        seats.map(|seat| seat.session.clone()).collect()
    }

    /// How many these are.
    pub fn connected_count(&self) -> usize {
        self.by_client.borrow().values().filter(|seat| seat.conn.is_some()).count()
    }
}
