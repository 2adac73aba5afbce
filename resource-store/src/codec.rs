//! The codec of all gRPC calls: that of tonic, with buffers that are small while nothing is sent.
//!
//! A stream has its buffer for as long as it is open. Most watches wait, so with tonic's 8 KiB
//! each, the buffers would be most of what a server with many watches takes.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Size of a new buffer, in bytes; it grows to what a message needs.
const INITIAL: usize = 512;
/// A stream with this much to send writes it before it takes more, in bytes: tonic's default.
const YIELD_AT: usize = 32 * 1024;

/// Encodes `T`, and decodes `U`.
#[derive(Debug)]
pub(crate) struct SmallBuffers<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallBuffers<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

fn settings() -> BufferSettings {
    BufferSettings::new(INITIAL, YIELD_AT)
}

impl<T, U> Codec for SmallBuffers<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(settings())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(settings())
    }
}
