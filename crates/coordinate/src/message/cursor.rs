//! Reading and writing payloads: fixed numbers and short names, bounds checked, nothing allocated.

use super::{DecodeError, EncodeError, NAME_BYTES_MAX};

/// What is wrong with a payload.
pub(super) enum Fault {
    /// It does not come from this protocol.
    Stranger,
    /// It comes from another version.
    Version(u16),
    /// Anything else, continuing "a frame whose".
    What(&'static str),
}

impl Fault {
    /// The error for a frame of this kind.
    pub fn at(self, kind: u8) -> DecodeError {
        match self {
            Fault::Stranger => DecodeError::NotAFrame,
            Fault::Version(theirs) => DecodeError::Version { theirs },
            Fault::What(what) => DecodeError::Payload { kind, what },
        }
    }
}

/// True when a name can be shown on a terminal and put into a log line as it is.
fn is_plain(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// Takes a payload apart.
pub(super) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { left: bytes }
    }

    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (front, rest) =
            self.left.split_at_checked(count).ok_or(Fault::What("payload ends early"))?;
        self.left = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (front, rest) =
            self.left.split_first_chunk::<N>().ok_or(Fault::What("payload ends early"))?;
        self.left = rest;
        Ok(*front)
    }

    pub fn u8(&mut self) -> Result<u8, Fault> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, Fault> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Bytes that this version leaves zero.
    pub fn zero(&mut self, count: usize) -> Result<(), Fault> {
        let zero = self.bytes(count)?.iter().all(|byte| *byte == 0);
        if zero { Ok(()) } else { Err(Fault::What("spare bytes are not zero")) }
    }

    /// Up to 255 bytes of any value.
    pub fn blob(&mut self) -> Result<&'a [u8], Fault> {
        let count = self.u8()?;
        self.bytes(count as usize)
    }

    pub fn name(&mut self) -> Result<&'a str, Fault> {
        let name = std::str::from_utf8(self.blob()?);
        name.ok().filter(|name| is_plain(name)).ok_or(Fault::What("name is not plain text"))
    }

    /// What has not been read, without taking it.
    pub fn rest(&self) -> &'a [u8] {
        self.left
    }

    /// Nothing may be left over.
    pub fn end(&self) -> Result<(), Fault> {
        if self.left.is_empty() { Ok(()) } else { Err(Fault::What("payload has more bytes")) }
    }
}

/// Puts a payload together.
pub(super) struct Writer<'a> {
    room: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub fn new(room: &'a mut [u8]) -> Writer<'a> {
        Writer { room, at: 0 }
    }

    /// Bytes written so far.
    pub fn written(&self) -> usize {
        self.at
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        let end = self.at + bytes.len();
        self.room.get_mut(self.at..end).ok_or(EncodeError::Room)?.copy_from_slice(bytes);
        self.at = end;
        Ok(())
    }

    pub fn u16(&mut self, value: u16) -> Result<(), EncodeError> {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u32(&mut self, value: u32) -> Result<(), EncodeError> {
        self.bytes(&value.to_le_bytes())
    }

    pub fn u64(&mut self, value: u64) -> Result<(), EncodeError> {
        self.bytes(&value.to_le_bytes())
    }

    pub fn blob(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        if bytes.len() > NAME_BYTES_MAX {
            return Err(EncodeError::Name);
        }
        self.bytes(&[bytes.len() as u8])?;
        self.bytes(bytes)
    }

    pub fn name(&mut self, name: &str) -> Result<(), EncodeError> {
        if is_plain(name) { self.blob(name.as_bytes()) } else { Err(EncodeError::Name) }
    }
}
