//! Settings: what holds for this process, and what the store keeps for all.

use http::HeaderValue;
use http::header::{ETAG, IF_MATCH};
use ring::digest::{SHA256, digest};
use windlass_core::store::{Admin, AdminRefused, ExpectedSetting, Reader};
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
    keep(&call, setting.name, Some(value)).await?;
    one(&call, setting).await
}

/// `DELETE /settings/{name}`: also of one that this version does not know, if the store keeps it.
pub(crate) async fn unset(call: Call) -> Answer {
    call.query(&[])?;
    let name = match named(&call) {
        Ok(setting) => setting.name.to_owned(),
        Err(unknown) => {
            stored(&call, call.param()).await?.ok_or(unknown)?;
            call.param().to_owned()
        }
    };
    keep(&call, &name, None).await?;
    call.app.refresh_settings().await?;
    Ok(router::no_content())
}

fn named(call: &Call) -> Result<&'static settings::Setting, Problem> {
    find(call.param()).map_err(|unknown| Problem::new(problem::NOT_FOUND, unknown))
}

/// Which value the request expects: that of the store if one of its tags is that value's. It is
/// compared once more in the commit, so that a change by another process in between is seen.
async fn expected(call: &Call, key: &SettingKey) -> Result<ExpectedSetting, Problem> {
    let Some(wanted) = call.headers.get(IF_MATCH).filter(|wanted| *wanted != "*") else {
        return Ok(ExpectedSetting::Any);
    };
    let value = stored(call, key.as_str()).await?;
    let tag = tag(key.as_str(), value.as_ref());
    if wanted.to_str().unwrap_or_default().split(',').any(|one| one.trim() == tag) {
        return Ok(ExpectedSetting::Exactly(value));
    }
    Err(AdminRefused::SettingChanged { key: key.clone(), value }.into())
}

/// The value in the store.
async fn stored(call: &Call, name: &str) -> Result<Option<SettingValue>, Problem> {
    let kept = call.app.reads.read(|reader: &mut dyn Reader| reader.settings()).await?;
    Ok(kept.into_iter().find(|(key, _)| key.as_str() == name).map(|(_, value)| value))
}

/// The tag of a value in the store: the same in every process.
fn tag(name: &str, stored: Option<&SettingValue>) -> String {
    let stored = stored.map(SettingValue::as_str);
    let digest = digest(&SHA256, format!("{name} {stored:?}").as_bytes());
    format!("\"{}\"", hex(&digest.as_ref()[..8]))
}

async fn keep(call: &Call, name: &str, value: Option<SettingValue>) -> Result<(), Problem> {
    let key = SettingKey::new(name)?;
    let expected = expected(call, &key).await?;
    call.app.queue()?.command(Admin::SetSetting { key, value, expected }).await?;
    Ok(())
}

/// The setting as it holds now. It holds for whatever is asked after this answer.
async fn one(call: &Call, setting: &settings::Setting) -> Answer {
    let levels = call.app.refresh_settings().await?;
    let shown = Setting::of(setting, &levels);
    let tag = tag(setting.name, stored(call, setting.name).await?.as_ref());
    let mut response = router::ok(&shown)?;
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}
