//! SIGTERM and SIGINT stop the node; SIGHUP lets it read its certificates again.

use std::sync::Arc;

use dump::shut_down;
use runtime::Shared;
use runtime::cores::Message;
use settings::SaveAtExit;

/// Heeds signals, from a thread of their own. It also looks whether files of certificates have changed.
pub fn on_signals(shared: Arc<Shared>) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut terminate, mut interrupt, mut hangup) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        )
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(async {
                loop {
                    let settings = shared.settings.current();
                    let (name, at_exit) = tokio::select! {
                        _ = terminate.recv() => ("SIGTERM", settings.shutdown_on_sigterm),
                        _ = interrupt.recv() => ("SIGINT", settings.shutdown_on_sigint),
                        _ = hangup.recv() => {
                            shared.tls.reload(&shared.settings.current().tls);
                            continue;
                        }
                        () = shared.tls.next_look() => {
                            shared.tls.reload_if_changed(&shared.settings.current().tls);
                            continue;
                        }
                    };
                    let settings = shared.settings.current();
                    let save = match at_exit {
                        SaveAtExit::Default => !settings.save.is_empty(),
                        SaveAtExit::Save => true,
                        SaveAtExit::NoSave => false,
                    };
                    tracing::info!("{name}: stopping");
                    if let Some(mailbox) = shared.mailboxes.first() {
                        mailbox.send(Message::Call(Box::new(move |core| {
                            let core = core.clone();
                            tokio::task::spawn_local(async move {
                                // Comes back only if the save failed: the node goes on, as Redis does.
                                let _error = shut_down(&core, save, false).await;
                            });
                        })));
                    }
                }
            });
        })?;
    Ok(())
}
