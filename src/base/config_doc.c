/* SPDX-License-Identifier: Apache-2.0 */
/* Prints docs/configuration.md; `ninja update-docs` writes it there. */
#include "base/config.h"

int main(void)
{
	ha_config_write_markdown(stdout);
	return fflush(stdout) != 0;
}
