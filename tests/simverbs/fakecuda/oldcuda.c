/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 that lacks what is looked for. */
int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
	return flags != 0;
}
