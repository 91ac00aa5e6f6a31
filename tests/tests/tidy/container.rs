//! Checks of the container image, which CI does not build: what runs it needs no rights, jobs
//! outlive it, and its compiler is that of the manifest.

use super::Finding;

/// What the context of the build leaves out: large, secret, another machine's, or (the toolchain)
/// in the way of the compiler that the Dockerfile names.
const LEFT_OUT: [&str; 5] =
    [".git", "**/target", "**/node_modules", "deploy/.env", "rust-toolchain.toml"];

/// What is wrong with the Dockerfile.
pub(crate) fn dockerfile(text: &str, rust_version: &str) -> Vec<Finding> {
    let last = text.rfind("\nFROM ").map_or(text, |at| &text[at..]);
    let argument = |name: &str| {
        let mut lines = last.lines().rev();
        lines.find_map(|line| line.strip_prefix(name)).map(str::trim)
    };
    let mut findings = Vec::new();
    let mut wrong = |is_wrong: bool, what: &str| {
        if is_wrong {
            findings.push(Finding::new(1, what));
        }
    };
    let is_number = |part: &str| part.parse::<u32>().is_ok_and(|id| id > 0);
    let user = argument("USER ").is_some_and(|user| user.split(':').all(is_number));
    wrong(!user, "`USER` must be a number other than 0: runAsNonRoot cannot judge a name");
    let volume = argument("VOLUME ");
    wrong(volume.is_none(), "without a `VOLUME` jobs are lost with the container");
    wrong(
        argument("WORKDIR ") != volume,
        "the default store is below `WORKDIR`: make it the volume",
    );
    let owned = volume.is_some_and(|path| {
        last.lines().any(|line| line.contains("install -d ") && line.ends_with(path))
    });
    wrong(!owned, "the volume must be made for its user");
    let compiler = format!("FROM rust:{rust_version}-");
    wrong(!text.contains(&compiler), "build with the `rust-version` of Cargo.toml");
    findings
}

/// What the context of a build holds and should not.
pub(crate) fn context(dockerignore: &str) -> Vec<Finding> {
    let listed = |wanted: &&str| dockerignore.lines().any(|line| line == *wanted);
    let missing = LEFT_OUT.iter().filter(|wanted| !listed(wanted));
    missing.map(|path| Finding::new(1, format!("{path} is not left out"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "FROM rust:1.2-slim AS build\nUSER root\n\nFROM debian\n\
        RUN install -d -o 7 /data\nUSER 7:7\nWORKDIR /data\nVOLUME /data\n";

    #[test]
    fn an_image_that_runs_as_root_or_loses_jobs_is_found() {
        assert_eq!(dockerfile(GOOD, "1.2"), []);
        for (from, to) in [
            ("USER 7:7\n", "USER windlass\n"),
            ("USER 7:7\n", "USER 0\n"),
            ("USER 7:7\n", ""),
            ("WORKDIR /data\n", "WORKDIR /\n"),
            ("RUN install -d -o 7 /data\n", ""),
            ("rust:1.2", "rust:1.3"),
        ] {
            let changed = GOOD.replace(from, to);
            assert_eq!(dockerfile(&changed, "1.2").len(), 1, "{changed}");
        }
        assert!(!dockerfile(&GOOD.replace("VOLUME /data\n", ""), "1.2").is_empty());
    }

    #[test]
    fn a_context_with_secrets_or_build_output_or_a_toolchain_is_found() {
        let all = LEFT_OUT.join("\n");
        assert_eq!(context(&all), []);
        assert_eq!(context(&all.replace("**/target", "# **/target")).len(), 1);
        assert_eq!(context(&all.replace("rust-toolchain.toml", "")).len(), 1);
    }
}
