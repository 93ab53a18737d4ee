//! Writes requests into a node's boxes through a raw client, which polls its own boxes for the
//! replies.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use rackscan_fabric::{
    RemoteRegion,
    post::{PostBoxes, PostSender, PostShape},
};
use rackscan_format::message::{Answer, Refusal, ReplyMessage, Request as NodeRequest, Target};
use rackscan_ramp::message::{Reply, Request};

use super::client::Client;

const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Posting {
    pub(crate) client: Client,
    pub(crate) replies: PostBoxes,
    pub(crate) requests: PostSender,
    /// The node's boxes.
    pub(crate) remote: RemoteRegion,
    turn: usize,
    /// Replies that came in boxes.
    arrived: HashMap<u64, (ReplyMessage, Option<usize>)>,
}

/// Asks for boxes.
pub(crate) fn open(client: &mut Client, boxes: u16, body_bytes_max: u32) -> Result<Answer, Refusal> {
    let replies = client.target(0, 1 << 20);
    client.ask(NodeRequest::OpenPosts { boxes, body_bytes_max, replies })
}

impl Posting {
    pub(crate) fn new(mut client: Client, boxes: u16, body_bytes_max: u32) -> Self {
        let shape = PostShape::new(boxes.into(), body_bytes_max as usize).expect("a shape");
        let replies = PostBoxes::new(shape).expect("memory for a test");
        let remote = replies.register(&mut client.connection).expect("the boxes are registered");
        let RemoteRegion { key, address: offset_bytes, length: length_bytes } = remote;
        let target = Target { key, offset_bytes, length_bytes };
        let request = NodeRequest::OpenPosts { boxes, body_bytes_max, replies: target };
        let Ok(Answer::Posts { requests }) = client.ask(request) else { panic!("boxes were expected") };
        let Target { key, offset_bytes: address, length_bytes: length } = requests;
        let remote = RemoteRegion { key, address, length };
        let requests = PostSender::new(remote, shape).expect("they are large enough");
        Self { client, replies, requests, remote, turn: 0, arrived: HashMap::new() }
    }

    /// Writes bytes into the next box.
    pub(crate) fn post_bytes(&mut self, bytes: &[u8]) {
        let sent = self.requests.send(&mut self.client.connection, u64::MAX, self.turn, bytes);
        sent.expect("there is room");
        self.turn = (self.turn + 1) % self.requests.shape().boxes();
    }

    /// Writes a request into the next box, and returns its number.
    pub(crate) fn post(&mut self, messages: &[Request]) -> u64 {
        let request = self.client.transact_request(messages);
        let (id, bytes) = self.client.encode(request);
        self.post_bytes(&bytes);
        id
    }

    /// Waits for the reply to a request, and says in which box it came.
    pub(crate) fn wait(&mut self, id: u64) -> (ReplyMessage, Option<usize>) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            while let Some((index, body)) = self.replies.next() {
                let reply = ReplyMessage::decode(body).expect("a node's replies are well formed");
                self.arrived.insert(reply.id.0, (reply, Some(index)));
            }
            if let Some(arrived) = self.arrived.remove(&id) {
                return arrived;
            }
            if let Some(reply) = self.client.take_reply(id) {
                return (reply, None);
            }
            let (mut events, replies) = (Vec::new(), &mut self.replies);
            self.client.connection.wait_or(&mut events, deadline, || replies.look());
            let goes_on = self.client.note(events);
            assert!(goes_on && Instant::now() < deadline, "no reply to request {id}");
        }
    }

    /// Asks by a box, and says in which the answer came.
    pub(crate) fn ask(&mut self, messages: &[Request]) -> (Vec<Reply>, Option<usize>) {
        let id = self.post(messages);
        let (reply, index) = self.wait(id);
        (self.client.replies(reply.outcome), index)
    }
}
