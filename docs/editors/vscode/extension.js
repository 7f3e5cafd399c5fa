// Starts `hapdsl lsp` for .hap files and talks to it.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = async () => {
    const [command, ...args] = workspace.getConfiguration("hapdsl").get("command");
    client = new LanguageClient("hapdsl", "hapdsl", { command, args }, { documentSelector: [{ language: "hap" }] });
    await client.start();
};

exports.deactivate = () => client && client.stop();
