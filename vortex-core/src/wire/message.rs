//! The messages of an IPC stream, which describe the bytes that follow.

use std::sync::Arc;

use flatbuffers::FlatBufferBuilder;

use super::generated::message::message as fb;
use super::{aligned, broken, verifier};
use crate::limits::Limits;
use crate::{Error, Result};

/// The content of a message's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// A dtype, as stored in files.
    DType,
    /// An array blob with this many rows; the ids are the table that its nodes refer to.
    Array { row_count: u32, ids: Arc<[Arc<str>]> },
}

/// A message without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: MessageKind,
    pub(crate) body_len: u64,
}

impl Message {
    pub(crate) fn parse(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let bytes = aligned(bytes);
        let root = flatbuffers::root_with_opts::<fb::Message<'_>>(&verifier(limits, bytes.len()), &bytes)
            .map_err(broken("message"))?;
        if root.version() != fb::MessageVersion::V0 {
            return Err(Error::unsupported("message version", root.version().0));
        }
        let kind = match root.header_type() {
            fb::MessageHeader::DTypeMessage => MessageKind::DType,
            fb::MessageHeader::BufferMessage => return Err(Error::corrupt("a bare buffer in the stream")),
            fb::MessageHeader::ArrayMessage => {
                let header =
                    root.header_as_array_message().ok_or_else(|| Error::corrupt("message without header"))?;
                MessageKind::Array {
                    row_count: header.row_count(),
                    ids: header.encodings().unwrap_or_default().iter().map(Arc::from).collect(),
                }
            }
            other => return Err(Error::unsupported("message", other.0)),
        };
        Ok(Self { kind, body_len: root.body_size() })
    }

    /// Serializes the message as a flatbuffer.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let (header_type, header) = match &self.kind {
            MessageKind::DType => {
                let header = fb::DTypeMessage::create(&mut builder, &fb::DTypeMessageArgs {});
                (fb::MessageHeader::DTypeMessage, header.as_union_value())
            }
            MessageKind::Array { row_count, ids } => {
                let ids: Vec<_> = ids.iter().map(|id| builder.create_string(id)).collect();
                let encodings = Some(builder.create_vector(&ids));
                let args = fb::ArrayMessageArgs { row_count: *row_count, encodings };
                let header = fb::ArrayMessage::create(&mut builder, &args);
                (fb::MessageHeader::ArrayMessage, header.as_union_value())
            }
        };
        let args = fb::MessageArgs {
            version: fb::MessageVersion::V0,
            header_type,
            header: Some(header),
            body_size: self.body_len,
        };
        let root = fb::Message::create(&mut builder, &args);
        builder.finish_minimal(root);
        builder.finished_data().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were_written() {
        let ids = ["vortex.struct".into(), "vortex.bool".into()].into();
        for kind in [MessageKind::DType, MessageKind::Array { row_count: 7, ids }] {
            let message = Message { kind, body_len: 1 << 40 };
            assert_eq!(Message::parse(&message.to_bytes(), &Limits::default()).unwrap(), message);
        }
        assert!(Message::parse(&[0; 12], &Limits::default()).is_err());
    }
}
