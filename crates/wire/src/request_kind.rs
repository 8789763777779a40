//! Telling requests apart before they are decoded.

/// Which [`Request`](crate::obj::Request) a body holds, told without decoding it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    Batch,
    Commit,
    Prepare,
    Lock,
    Orders,
    Member,
    Cell,
    /// Another, or nonsense: decoding will tell.
    Other,
}

impl RequestKind {
    /// What the encoding of a [`Request::Batch`](crate::obj::Request::Batch) begins with; the batch's fields follow.
    pub const BATCH_TAG: u8 = 0;
    /// The same of a [`Request::Prepare`](crate::obj::Request::Prepare).
    pub(crate) const PREPARE_TAG: u8 = 2;

    /// What [`Request::is_for_engines`](crate::obj::Request::is_for_engines) says, where the kind tells it.
    pub fn is_for_engines(self) -> bool {
        match self {
            RequestKind::Prepare
            | RequestKind::Orders
            | RequestKind::Member
            | RequestKind::Cell => true,
            RequestKind::Batch | RequestKind::Commit | RequestKind::Lock | RequestKind::Other => {
                false
            }
        }
    }

    /// Looks at the variant number that postcard puts first.
    pub fn of(body: &[u8]) -> RequestKind {
        match body.first() {
            Some(0) => RequestKind::Batch,
            Some(1) => RequestKind::Commit,
            Some(2) => RequestKind::Prepare,
            Some(11) => RequestKind::Lock,
            Some(16) => RequestKind::Orders,
            Some(17) => RequestKind::Member,
            Some(18) => RequestKind::Cell,
            _ => RequestKind::Other,
        }
    }
}
