//! A headless Chromium, driven over the protocol of its developer tools through pipes.
//!
//! Crates for this protocol compile more than a hundred others. Through pipes, a message is JSON with a zero byte at its
//! end: <https://chromedevtools.github.io/devtools-protocol/>.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use lease_test_servers::tools::{memory_folder, tool};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::site::{PATIENT, Site, dependent};

/// One page in a browser of its own. A drop ends the browser.
#[derive(Debug)]
pub(crate) struct Browser {
    program: Child,
    _folder: TempDir,
    requests: ChildStdin,
    messages: Receiver<Value>,
    events: VecDeque<Value>,
    session: Option<String>,
    sent: u64,
}

impl Browser {
    /// Opens `url`. Returns `None` if Chromium is not installed.
    pub(crate) fn open(url: &str) -> Option<Self> {
        let program = tool("chromium-headless-shell", &[])?;
        let folder = tempfile::tempdir_in(memory_folder()).unwrap();
        let mut command = dependent("sh");
        // Chromium reads from descriptor 3, and writes to 4.
        command.args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"]);
        command.arg(program).args(["--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"]);
        command.arg(format!("--user-data-dir={}", folder.path().display()));
        let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (requests, answers) = (program.stdin.take().unwrap(), program.stdout.take().unwrap());
        let (send, messages) = channel();
        // A thread, since a pipe has no time limit.
        thread::spawn(move || {
            for message in BufReader::new(answers).split(0) {
                let Ok(message) = message else { return };
                drop(send.send(serde_json::from_slice(&message).unwrap()));
            }
        });
        let events = VecDeque::new();
        let mut browser =
            Self { program, _folder: folder, requests, messages, events, session: None, sent: 0 };
        let target = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Performance"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser.call("Page.navigate", &json!({ "url": url }));
        browser.wait("document.querySelector('#views button')");
        Some(browser)
    }

    /// Sends a command, and returns its result.
    pub(crate) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.sent += 1;
        let id = self.sent;
        let mut request = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            request["sessionId"] = session.as_str().into();
        }
        self.requests.write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let message = self.messages.recv_timeout(2 * PATIENT).unwrap();
            if message["id"] == id {
                assert_eq!(message["error"], Value::Null, "{method}");
                return message["result"].clone();
            }
            self.events.push_back(message);
        }
    }

    /// Evaluates JavaScript in the page, and waits for a promise.
    pub(crate) fn value(&mut self, script: &str) -> Value {
        let parameters =
            json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", &parameters);
        assert_eq!(result["exceptionDetails"], Value::Null, "{script}");
        result["result"]["value"].clone()
    }

    /// Waits until `condition` holds in the page.
    pub(crate) fn wait(&mut self, condition: &str) {
        let limit = PATIENT.as_millis();
        let script = format!(
            "new Promise((done) => {{
                const end = Date.now() + {limit};
                const look = () => {{
                    if ({condition}) done('');
                    else if (Date.now() > end) done(document.body.innerText);
                    else setTimeout(look, 10);
                }};
                look();
            }})"
        );
        let text = self.value(&script);
        assert_eq!(text, "", "not within a minute: {condition}");
    }

    /// Presses and releases a key.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            "Escape" => (27, ""),
            "End" => (35, ""),
            "Home" => (36, ""),
            "ArrowRight" => (39, ""),
            "ArrowDown" => (40, ""),
            "/" => (191, "/"),
            other => panic!("add the code of {other}"),
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text,
            });
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// Presses Tab until the element with this id has the focus.
    pub(crate) fn tab_to(&mut self, id: &str) {
        for _ in 0..30 {
            if self.value("document.activeElement.id") == id {
                return;
            }
            self.press("Tab");
        }
        panic!("no Tab reaches #{id}");
    }

    /// Enters text where the focus is.
    pub(crate) fn write(&mut self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    pub(crate) fn click(&mut self, selector: &str) {
        self.value(&format!("document.querySelector('{selector}').click()"));
    }

    /// The size of the screen, in CSS pixels.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.call("Emulation.setDeviceMetricsOverride", &size);
    }

    pub(crate) fn prefer(&mut self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &features);
    }

    /// How long the main thread of the page has worked, in milliseconds.
    pub(crate) fn busy(&mut self) -> f64 {
        let metrics = self.call("Performance.getMetrics", &json!({}));
        let mut metrics = metrics["metrics"].as_array().unwrap().iter();
        let busy = metrics.find(|metric| metric["name"] == "TaskDuration").unwrap();
        busy["value"].as_f64().unwrap() * 1000.0
    }

    /// Writes a picture of the page into the folder that `LEASE_SCREENSHOTS` names, if it does.
    pub(crate) fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("LEASE_SCREENSHOTS") else { return };
        let picture = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        let data = BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), data).unwrap();
    }

    /// Fails if the page has thrown an exception, or has broken its own policy.
    pub(crate) fn assert_no_errors(&mut self) {
        self.value("0");
        let is_error = |event: &&Value| {
            event["method"] == "Runtime.exceptionThrown"
                || (event["method"] == "Log.entryAdded"
                    && event["params"]["entry"]["source"] != "network"
                    && event["params"]["entry"]["level"] == "error")
        };
        let errors: Vec<_> = self.events.iter().filter(is_error).collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.program.kill());
        drop(self.program.wait());
    }
}

impl Site {
    /// Opens the printed URL. Returns `None` if Chromium is not installed.
    pub(crate) fn browser(&self) -> Option<Browser> {
        Browser::open(&self.url)
    }
}
