//! Finding the route of a request: the table of routes, ready to be searched.

use std::sync::Arc;

use http::Method;
use matchit::Router;

use crate::api::routes::{ROUTES, Route};
use crate::api::wire;

/// The routes, ready to be found.
#[derive(Debug)]
pub(crate) struct Routes {
    paths: Router<Vec<&'static Route>>,
}

impl Routes {
    pub(crate) fn new() -> Arc<Self> {
        let mut by_path: Vec<(&str, Vec<&'static Route>)> = Vec::new();
        for route in ROUTES.iter() {
            match by_path.iter_mut().find(|(path, _)| *path == route.path) {
                Some((_, routes)) => routes.push(route),
                None => by_path.push((route.path, vec![route])),
            }
        }
        let mut paths = Router::new();
        for (path, routes) in by_path {
            paths.insert(path, routes).expect("the paths of the table do not clash: see the test");
        }
        Arc::new(Self { paths })
    }

    pub(crate) fn find(&self, method: &Method, path: &str) -> Found {
        let Ok(found) = self.paths.at(path) else { return Found::Nothing };
        let wanted = if method == Method::HEAD { &Method::GET } else { method };
        let params = found.params.iter().map(|(_, value)| wire::unescaped(value)).collect();
        if let Some(route) = found.value.iter().find(|route| route.method == *wanted) {
            return Found::Route(route, params);
        }
        let methods = found.value.iter().map(|route| route.method.as_str());
        Found::OtherMethods(methods.collect::<Vec<_>>().join(", "))
    }
}

/// What a path and a method lead to.
#[derive(Debug)]
pub(crate) enum Found {
    /// The route, and the parts of the path that vary.
    Route(&'static Route, Vec<String>),
    OtherMethods(String),
    Nothing,
}

impl Found {
    /// The path as the table has it: a label that does not grow with what clients send.
    pub(crate) fn path(&self) -> &'static str {
        match self {
            Self::Route(route, _) => route.path,
            Self::OtherMethods(_) | Self::Nothing => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_of_the_table_is_found() {
        let routes = Routes::new();
        for route in ROUTES.iter() {
            let path = route
                .path
                .replace("{id}", "42")
                .replace("{queue}", "default")
                .replace("{worker}", "w-1")
                .replace("{name}", "workers")
                .replace("{build}", "0")
                .replace("{file}", "app.js");
            let found = routes.find(&route.method, &path);
            assert!(
                matches!(found, Found::Route(found, _) if std::ptr::eq(found, route)),
                "{path}"
            );
        }
    }

    #[test]
    fn another_method_is_answered_with_the_allowed_ones() {
        let found = Routes::new().find(&Method::PATCH, "/jobs");
        assert!(matches!(found, Found::OtherMethods(methods) if methods == "POST, GET"));
        assert!(matches!(Routes::new().find(&Method::GET, "/nowhere"), Found::Nothing));
    }
}
