// discover.ts PROJECT TIMES: oh-my-pi's own discovery over PROJECT/.omp/agents. Prints how many definitions it found, then the
// milliseconds of each time.
import { homedir } from "node:os";
import { discoverAgents } from "@oh-my-pi/pi-coding-agent/task/discovery";

const [project, times] = process.argv.slice(2);
const took: string[] = [];
let found = 0;
for (let time = 0; time < Number(times); time++) {
  const began = performance.now();
  const { agents } = await discoverAgents(project, homedir());
  took.push((performance.now() - began).toFixed(3));
  found = agents.filter((agent) => agent.source === "project").length;
}
console.log(found, ...took);
process.exit(0);
