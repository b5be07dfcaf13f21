//! CLUSTER COUNTKEYSINSLOT, GETKEYSINSLOT: keys by slot. Rows are in the order of slots, so this is
//! one range of the store, read by a reader thread.

use base::{Refusal, SLOT_COUNT, Slot};
use keyspace::rows::{Family, Tier, layout};
use resp::{Args, Reply};
use runtime::cores::NOWHERE;
use session::Later;
use session::Session;

use super::cluster_of;

/// Keys of a slot that this node leads, `most` of them.
async fn keys_of_slot(
    session: &mut Session,
    slot: Slot,
    most: usize,
) -> Result<(usize, Vec<Vec<u8>>), Refusal> {
    let place = cluster_of(session)?.places.of_slot(slot);
    if place == NOWHERE {
        return Ok((0, Vec::new()));
    }
    // What is held is settled: its rows are in the store. The moment is read when it has gone back.
    let mut held = session.hold(&[place]).await;
    let key = held
        .spaces()
        .next()
        .and_then(|space| space.alive().first().copied());
    let shared = session.shared().clone();
    let moment = shared.durable.as_ref().map(|it| it.stores.rows.snapshot());
    session.release(held).await;
    let (Some((home, index_id)), Some(moment), Some(durable)) = (key, moment, &shared.durable)
    else {
        return Ok((0, Vec::new()));
    };
    let (found, answer) = tokio::sync::oneshot::channel();
    durable.readers.send(Box::new(move |_| {
        let mut from = Vec::new();
        layout::push_prefix(&mut from, home, index_id);
        from.extend_from_slice(&slot.to_be_bytes());
        let to = layout::behind(&from);
        let (mut count, mut keys) = (0, Vec::new());
        let scanned = moment.scan(
            Family::Metadata,
            &from,
            &to,
            false,
            Tier::All,
            &mut |row, _| {
                if let Some(at) = layout::parse_metadata_key(row) {
                    count += 1;
                    if keys.len() < most {
                        keys.push(at.key.to_vec());
                    }
                }
                most == 0 || keys.len() < most
            },
        );
        let _ = found.send(scanned.map(|()| (count, keys)));
    }));
    match answer.await {
        Ok(Ok(found)) => Ok(found),
        _ => Err(Refusal::new("ERR the keys of the slot could not be read")),
    }
}

pub fn count_keys<'a>(
    session: &'a mut Session,
    args: &'a Args<'a>,
    reply: &'a mut Reply,
) -> Later<'a> {
    Box::pin(async move {
        cluster_of(session)?;
        let slot = args.int(2)?;
        let slot = Slot::try_from(slot).ok().filter(|&slot| slot < SLOT_COUNT);
        let slot = slot.ok_or(Refusal::new("ERR Invalid slot"))?;
        let (count, _) = keys_of_slot(session, slot, 0).await?;
        reply.int(count as i64);
        Ok(())
    })
}

pub fn get_keys<'a>(
    session: &'a mut Session,
    args: &'a Args<'a>,
    reply: &'a mut Reply,
) -> Later<'a> {
    Box::pin(async move {
        cluster_of(session)?;
        let (slot, most) = (args.int(2)?, args.int(3)?);
        let slot = Slot::try_from(slot).ok().filter(|&slot| slot < SLOT_COUNT);
        let most = usize::try_from(most).ok();
        let invalid = Refusal::new("ERR Invalid slot or number of keys");
        let (slot, most) = slot.zip(most).ok_or(invalid)?;
        let keys = match most {
            0 => Vec::new(),
            most => keys_of_slot(session, slot, most).await?.1,
        };
        reply.array(keys.len());
        keys.iter().for_each(|key| reply.bulk(key));
        Ok(())
    })
}
