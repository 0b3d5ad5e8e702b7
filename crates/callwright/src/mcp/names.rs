//! The names of servers' tools: their own, and where two tools have the same, that of the server before it.

use crate::tool::Tools;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

/// The tools of a server, as it describes them.
pub(super) struct Listed {
    pub server: String,
    pub tools: Vec<Value>,
}

impl Listed {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().filter_map(|tool| tool.get("name").and_then(Value::as_str))
    }
}

/// The names that tools have for the model.
#[derive(Default)]
pub(super) struct Names {
    /// For the model's name, the server's index and the name there.
    routes: HashMap<String, (usize, String)>,
    /// The names that were given. They stay, so that earlier calls in a conversation mean the same tool.
    given: HashMap<(usize, String), String>,
    /// The model's names, in the order of servers and tools.
    order: Vec<String>,
}

impl Names {
    /// The server that has the tool of that name, and the tool's name there.
    pub(super) fn route(&self, name: &str) -> Option<(usize, String)> {
        self.routes.get(name).cloned()
    }

    /// The tools of a server, by the model's names.
    pub(super) fn of_server(&self, server: usize) -> Vec<String> {
        let own = |name: &&String| self.routes.get(*name).is_some_and(|(index, _)| *index == server);
        self.order.iter().filter(own).cloned().collect()
    }

    /// Reads the tools of all servers; none gets the name of one of the `others`. Servers of which no tool can be used are
    /// named in the second part.
    pub(super) fn read(&mut self, listed: &[Listed], others: &Tools) -> (Tools, Vec<String>) {
        let mut servers: HashMap<&str, HashSet<usize>> = HashMap::new();
        for (index, server) in listed.iter().enumerate() {
            for name in server.names() {
                servers.entry(name).or_default().insert(index);
            }
        }
        self.routes.clear();
        self.order.clear();
        let (mut tools, mut unusable) = (Tools::default(), Vec::new());
        for (index, server) in listed.iter().enumerate() {
            let mut described = server.tools.clone();
            for tool in &mut described {
                let Some(own) = tool.get("name").and_then(Value::as_str).map(str::to_owned) else { continue };
                let key = (index, own.clone());
                let name = match self.given.get(&key) {
                    Some(given) => given.clone(),
                    None => {
                        let shared = servers.get(own.as_str()).is_some_and(|servers| servers.len() > 1);
                        let taken = others.get(&own).is_some() || self.given.values().any(|given| *given == own);
                        let name = if shared || taken { format!("{}_{own}", server.server) } else { own.clone() };
                        self.given.insert(key, name.clone());
                        name
                    }
                };
                tool["name"] = json!(name);
                self.routes.entry(name.clone()).or_insert((index, own));
            }
            match Tools::from_value(&json!({"tools": described})) {
                Ok(read) => tools.append(read),
                Err(error) if !described.is_empty() => unusable.push(format!(
                    "the MCP server {:?} has no tool that can be used: {}",
                    server.server,
                    error.message()
                )),
                Err(_) => {}
            }
        }
        // Those that were left out are nowhere.
        self.routes.retain(|name, _| tools.iter().any(|tool| tool.name == *name));
        self.order = tools.iter().map(|tool| tool.name.clone()).collect();
        (tools, unusable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Tool;

    fn listed(server: &str, names: &[&str]) -> Listed {
        let tools = names.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect();
        Listed { server: server.to_owned(), tools }
    }

    fn read(names: &mut Names, listed: &[Listed], others: &Tools) -> Vec<String> {
        names.read(listed, others).0.iter().map(|tool| tool.name.clone()).collect()
    }

    #[test]
    fn only_names_that_two_tools_have_get_a_prefix() {
        let mut names = Names::default();
        let others = Tools::new([Tool::new("clock", "", None)]).unwrap();
        let servers = [listed("one", &["read", "clock", "only"]), listed("two", &["read"])];
        assert_eq!(read(&mut names, &servers, &others), ["one_read", "one_clock", "only", "two_read"]);
        assert_eq!(names.route("two_read"), Some((1, "read".to_owned())));
        assert_eq!(names.route("read"), None);
        assert_eq!(names.of_server(0), ["one_read", "one_clock", "only"]);
    }

    #[test]
    fn a_name_stays_when_another_server_gets_a_tool_of_that_name() {
        let mut names = Names::default();
        let mut servers = [listed("one", &["read"]), listed("two", &[])];
        assert_eq!(read(&mut names, &servers, &Tools::default()), ["read"]);
        servers[1] = listed("two", &["read"]);
        assert_eq!(read(&mut names, &servers, &Tools::default()), ["read", "two_read"]);
        assert_eq!(names.route("read"), Some((0, "read".to_owned())));
    }

    #[test]
    fn a_faulty_tool_does_not_take_the_others_with_it() {
        let mut names = Names::default();
        let mut server = listed("one", &["good"]);
        server.tools.push(json!({"description": "no name"}));
        let (tools, unusable) = names.read(&[server], &Tools::default());
        assert_eq!(tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["good"]);
        assert_eq!((tools.notices().len(), unusable), (1, Vec::new()));
        let nameless = Listed { server: "two".to_owned(), tools: vec![json!({"description": "no name"})] };
        let (_, unusable) = names.read(&[listed("empty", &[]), nameless], &Tools::default());
        assert!(unusable.len() == 1 && unusable[0].contains("\"two\" has no tool that can be used"), "{unusable:?}");
    }
}
