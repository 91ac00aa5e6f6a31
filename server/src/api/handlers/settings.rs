//! Settings: what holds for this process, and what the store keeps for all.

use http::HeaderValue;
use http::header::{ETAG, IF_MATCH};
use ring::digest::{SHA256, digest};
use tokio::sync::Mutex;
use windlass_core::store::{Admin, Reader};
use windlass_core::{SettingKey, SettingValue};

use crate::api::problem::{self, Problem};
use crate::api::wire::{self, NewSetting, Setting, SettingList};
use crate::http::router::{self, Answer, Call};
use crate::http::ui::hex;
use crate::settings::{self, find};

/// `GET /settings`
pub(crate) async fn list(call: Call) -> Answer {
    call.query(&[])?;
    let levels = call.app.refresh_settings().await?;
    router::ok(&SettingList::of(&levels))
}

/// `GET /settings/{name}`
pub(crate) async fn get(call: Call) -> Answer {
    call.query(&[])?;
    one(&call, named(&call)?).await
}

/// `PUT /settings/{name}`
pub(crate) async fn set(call: Call) -> Answer {
    let setting = named(&call)?;
    let new: NewSetting = wire::json(&call.body)?;
    let value = SettingValue::new(&new.check(setting)?.to_string());
    let value = value.map_err(|error| Problem::field("/value", error))?;
    let _alone = CHANGES.lock().await;
    unchanged(&call, setting.name).await?;
    keep(&call, setting.name, Some(value)).await?;
    one(&call, setting).await
}

/// `DELETE /settings/{name}`: also of one that this version does not know, if the store keeps it.
pub(crate) async fn unset(call: Call) -> Answer {
    call.query(&[])?;
    let name = match named(&call) {
        Ok(setting) => setting.name.to_owned(),
        Err(unknown) => {
            let kept = call.app.reads.read(|reader: &mut dyn Reader| reader.settings()).await?;
            let kept = kept.iter().find(|(key, _)| key.as_str() == call.param());
            kept.map(|(key, _)| key.as_str().to_owned()).ok_or(unknown)?
        }
    };
    let _alone = CHANGES.lock().await;
    unchanged(&call, &name).await?;
    keep(&call, &name, None).await?;
    call.app.refresh_settings().await?;
    Ok(router::no_content())
}

fn named(call: &Call) -> Result<&'static settings::Setting, Problem> {
    find(call.param()).map_err(|unknown| Problem::new(problem::NOT_FOUND, unknown))
}

/// Changes by this server, one at a time: none comes between the comparison and the write of
/// another.
static CHANGES: Mutex<()> = Mutex::const_new(());

/// Refuses if the request names an `ETag` and the value in the store is another. A change that
/// another process makes between this and the commit is not seen.
async fn unchanged(call: &Call, name: &str) -> Result<(), Problem> {
    let Some(wanted) = call.headers.get(IF_MATCH).filter(|wanted| *wanted != "*") else {
        return Ok(());
    };
    let kept = call.app.reads.read(|reader: &mut dyn Reader| reader.settings()).await?;
    let kept = kept.iter().find(|(key, _)| key.as_str() == name).map(|(_, value)| value.as_str());
    let (tag, tags) = (tag(name, kept), wanted.to_str().unwrap_or_default());
    if tags.split(',').any(|one| one.trim() == tag) {
        return Ok(());
    }
    Err(Problem::setting_changed(name, kept))
}

/// The tag of a value in the store: the same in every process.
fn tag(name: &str, stored: Option<&str>) -> String {
    let digest = digest(&SHA256, format!("{name} {stored:?}").as_bytes());
    format!("\"{}\"", hex(&digest.as_ref()[..8]))
}

async fn keep(call: &Call, name: &str, value: Option<SettingValue>) -> Result<(), Problem> {
    let key = SettingKey::new(name)?;
    call.app.queue()?.command(Admin::SetSetting(key, value)).await?;
    Ok(())
}

/// The setting as it holds now. It holds for whatever is asked after this answer.
async fn one(call: &Call, setting: &settings::Setting) -> Answer {
    let levels = call.app.refresh_settings().await?;
    let shown = Setting::of(setting, &levels);
    let kept = call.app.reads.read(|reader: &mut dyn Reader| reader.settings()).await?;
    let kept = kept.iter().find(|(key, _)| key.as_str() == setting.name);
    let tag = tag(setting.name, kept.map(|(_, value)| value.as_str()));
    let mut response = router::ok(&shown)?;
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}
