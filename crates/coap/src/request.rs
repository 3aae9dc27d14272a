//! A request as an origin server sees it: every option checked once, in one pass (RFC 7252 §5.4, §5.10).

use std::hash::{BuildHasher, Hash, Hasher};

use bytes::Bytes;
use foldhash::fast::FixedState;
use smallvec::SmallVec;

use crate::block::Block;
use crate::code::Code;
use crate::etag::ETag;
use crate::message::Message;
use crate::option::{Opt, OptionNumber};
use crate::response::Location;

/// The Observe option of a request (RFC 7641 §2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObserveWish {
    /// Value 0: add the client to the list of observers.
    Register,
    /// Value 1: remove the client from the list of observers.
    Deregister,
}

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// As it came, in one datagram.
    Slice(&'a [u8]),
    /// Put together from blocks (RFC 7959 §2.5).
    Whole(Bytes),
}

impl Body<'_> {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Slice(bytes) => bytes,
            Self::Whole(bytes) => bytes,
        }
    }
}

/// A request whose options are all understood.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// GET, POST, PUT, DELETE, FETCH or one that is not known here.
    pub method: Code,
    /// The body, whole.
    pub body: Body<'a>,
    /// The Content-Format of the body.
    pub content_format: Option<u16>,
    /// The format wanted (RFC 7252 §5.10.4).
    pub accept: Option<u16>,
    /// Observe, on the methods it is defined for (RFC 7641 §2, RFC 8132 §2.4).
    pub observe: Option<ObserveWish>,
    pub(crate) block1: Option<Block>,
    pub(crate) block2: Option<Block>,
    pub(crate) size1: Option<u32>,
    pub(crate) no_response: u8,
    pub(crate) echo: Option<&'a [u8]>,
    pub(crate) etags: SmallVec<[ETag; 1]>,
    conditional: bool,
    /// There is an OSCORE option: the request proper is inside.
    pub(crate) protected: bool,
    message: Message<'a>,
}

/// Why a request is refused before anyone looks at the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestFault {
    /// A critical option that is unknown, misplaced, of a wrong length or too often there (RFC 7252 §5.4.1).
    #[error("{0} is not understood")]
    BadOption(OptionNumber),
    /// Proxy-Uri or Proxy-Scheme (RFC 7252 §5.10.2).
    #[error("this is no proxy")]
    Proxying,
    /// A block option with the reserved size (RFC 7959 §2.2).
    #[error("block size 7 is reserved")]
    BlockSize,
    /// Hop-Limit of zero (RFC 8768 §3).
    #[error("a hop limit of 0")]
    HopLimit,
}

impl RequestFault {
    /// The response code that the standard names.
    #[must_use]
    pub const fn reason(&self) -> Code {
        match self {
            Self::BadOption(_) => Code::BAD_OPTION,
            Self::Proxying => Code::PROXYING_NOT_SUPPORTED,
            Self::BlockSize | Self::HopLimit => Code::BAD_REQUEST,
        }
    }
}

impl<'a> Request<'a> {
    /// Looks at every option of a message that carries a request code.
    ///
    /// # Errors
    /// [`RequestFault`], which names the response code.
    pub fn parse(message: Message<'a>) -> Result<Self, RequestFault> {
        Self::parse_over(message, false)
    }

    /// The same of a reliable transport, where blocks may be BERT (RFC 8323 §6).
    pub(crate) fn parse_over(message: Message<'a>, reliable: bool) -> Result<Self, RequestFault> {
        let mut request = Self {
            method: message.code,
            body: Body::Slice(message.payload()),
            content_format: None,
            accept: None,
            observe: None,
            block1: None,
            block2: None,
            size1: None,
            no_response: 0,
            echo: None,
            etags: SmallVec::new(),
            conditional: false,
            protected: false,
            message,
        };
        let mut previous = None;
        for option in message.options() {
            let known = option.number.definition().is_some_and(|definition| {
                let supernumerary = previous == Some(option.number) && !definition.is_repeatable();
                definition.admits(option.value.len()) && !supernumerary
            });
            previous = Some(option.number);
            let understood = known && request.take(&option, reliable)?;
            if !understood && option.number.is_critical() {
                return Err(RequestFault::BadOption(option.number));
            }
        }
        Ok(request)
    }

    /// Takes one option in; says whether it means something here.
    fn take(&mut self, option: &Opt<'a>, reliable: bool) -> Result<bool, RequestFault> {
        let uint = option.uint();
        let format = uint.and_then(|number| u16::try_from(number).ok());
        let decode = |value| if reliable { Some(Block::decode_reliable(value)) } else { Block::decode(value) };
        let block = || uint.and_then(decode).ok_or(RequestFault::BlockSize).map(Some);
        match option.number {
            OptionNumber::URI_PATH | OptionNumber::URI_QUERY | OptionNumber::URI_HOST => {
                // RFC 7252 §3.2: strings are UTF-8; another value is as good as unknown (§5.4.3).
                return Ok(option.value.is_ascii() || option.text().is_some());
            }
            OptionNumber::CONTENT_FORMAT => self.content_format = format,
            OptionNumber::ACCEPT => self.accept = format,
            OptionNumber::OBSERVE => self.observe = self.observe_wish(uint),
            OptionNumber::BLOCK1 => self.block1 = block()?,
            OptionNumber::BLOCK2 => self.block2 = block()?,
            OptionNumber::SIZE1 => self.size1 = uint,
            OptionNumber::ETAG => self.push_etag(option.value),
            OptionNumber::NO_RESPONSE => self.no_response = option.value.first().copied().unwrap_or(0),
            OptionNumber::ECHO => self.echo = Some(option.value),
            OptionNumber::IF_MATCH | OptionNumber::IF_NONE_MATCH => self.conditional = true,
            OptionNumber::OSCORE => self.protected = true,
            OptionNumber::PROXY_URI | OptionNumber::PROXY_SCHEME => return Err(RequestFault::Proxying),
            OptionNumber::HOP_LIMIT if uint == Some(0) => return Err(RequestFault::HopLimit),
            OptionNumber::HOP_LIMIT
            | OptionNumber::URI_PORT
            | OptionNumber::MAX_AGE
            | OptionNumber::SIZE2
            | OptionNumber::REQUEST_TAG => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// RFC 7641 §2: other values, and other methods, are as if the option were not there.
    fn observe_wish(&self, value: Option<u32>) -> Option<ObserveWish> {
        match value {
            Some(0) if self.method.is_safe_method() => Some(ObserveWish::Register),
            Some(1) if self.method.is_safe_method() => Some(ObserveWish::Deregister),
            _ => None,
        }
    }

    /// More tags than anyone needs are ignored, which costs the client one whole answer.
    fn push_etag(&mut self, value: &[u8]) {
        const ETAGS_MAX: usize = 8;
        if self.etags.len() < ETAGS_MAX {
            self.etags.extend(ETag::new(value));
        }
    }

    /// The levels of the path, in order, as they came: not percent-decoded, empty ones included.
    pub fn path(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.texts(OptionNumber::URI_PATH)
    }

    /// The query parameters, in order.
    pub fn queries(&self) -> impl Iterator<Item = Query<'a>> + use<'a> {
        self.texts(OptionNumber::URI_QUERY).map(Query::split)
    }

    /// Whether the request may go on, given the tag of the current state, or `None` when there is no state
    /// (RFC 7252 §5.10.8); otherwise 4.12.
    #[must_use]
    pub fn precondition_holds(&self, current: Option<&ETag>) -> bool {
        if !self.conditional {
            return true;
        }
        let (mut wanted, mut matched) = (false, false);
        for option in self.message.options() {
            match option.number {
                OptionNumber::IF_NONE_MATCH if current.is_some() => return false,
                OptionNumber::IF_MATCH => {
                    wanted = true;
                    matched |= current.is_some_and(|tag| option.value.is_empty() || tag.as_slice() == option.value);
                }
                _ => {}
            }
        }
        matched || !wanted
    }

    /// Whether there is an If-Match or If-None-Match.
    #[must_use]
    pub const fn is_conditional(&self) -> bool {
        self.conditional
    }

    /// A number that is the same for requests that ask for the same thing (RFC 7252 §5.6, RFC 7959 §2.4, §2.5,
    /// RFC 8132 §2): all blocks of one transfer, and the requests that fetch the rest of a notification.
    pub(crate) fn cache_key(&self, state: &FixedState) -> u64 {
        let mut hasher = state.build_hasher();
        self.method.hash(&mut hasher);
        hash_options(&self.message, &mut hasher);
        if self.method == Code::FETCH {
            self.body.as_slice().hash(&mut hasher);
        }
        hasher.finish()
    }

    fn texts(&self, number: OptionNumber) -> impl Iterator<Item = &'a str> + use<'a> {
        self.message
            .options()
            .skip_while(move |option| option.number < number)
            .take_while(move |option| option.number == number)
            .filter_map(|option| option.text())
    }
}

/// The number of a GET for what an answer names by Location-Path.
pub(crate) fn location_cache_key(location: Location<'_>, state: &FixedState) -> u64 {
    let mut hasher = state.build_hasher();
    Code::GET.hash(&mut hasher);
    for level in std::iter::once(location.root).chain(location.path.split('/')) {
        OptionNumber::URI_PATH.hash(&mut hasher);
        level.as_bytes().hash(&mut hasher);
    }
    hasher.finish()
}

/// The cache key of a protected message, which the messages of one block-wise transfer share (RFC 8613 §4.1.3.4.2).
pub(crate) fn outer_cache_key(message: &Message<'_>, state: &FixedState) -> u64 {
    let mut hasher = state.build_hasher();
    message.code.hash(&mut hasher);
    hash_options(message, &mut hasher);
    hasher.finish()
}

fn hash_options(message: &Message<'_>, hasher: &mut impl Hasher) {
    for option in message.options() {
        let per_message = option.number.is_no_cache_key()
            || matches!(
                option.number,
                OptionNumber::BLOCK1
                    | OptionNumber::BLOCK2
                    | OptionNumber::OBSERVE
                    | OptionNumber::ETAG
                    | OptionNumber::NO_RESPONSE
            );
        if !per_message {
            option.number.hash(hasher);
            option.value.hash(hasher);
        }
    }
}

/// One query parameter, split at the first `=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// Before the `=`.
    pub name: &'a str,
    /// Behind it; empty when there is none.
    pub value: &'a str,
}

impl<'a> Query<'a> {
    /// Splits a Uri-Query.
    #[must_use]
    pub fn split(text: &'a str) -> Self {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        Self { name, value }
    }
}
